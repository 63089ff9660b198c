/* Metric values of many launches, read off the wire: what instep.py does with numpy, compiled.
 *
 * Both give the same columns for the same bytes and refuse the same bytes. Every read is bounded by the message
 * that it belongs to, so that no damage makes this read beyond a buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "reports are little-endian, and so must the machine be"
#endif

enum kind { NONE, TEXT, FLOAT, DOUBLE, UINT32, UINT64 }; /* as in metrics.py */

enum tag {
    METRIC = 0x6A,
    NAME = 0x08, VALUE = 0x12, INSTANCE = 0x1A, FLAG = 0x20, /* in a metric */
    CORRELATION = 0x0A,                                      /* in an instance, beside VALUE */
    OF_TEXT = 0x0A, OF_FLOAT = 0x15, OF_DOUBLE = 0x19, OF_UINT32 = 0x20, OF_UINT64 = 0x28 /* in a value */
};

static PyObject *wire_error;

static int refuse(const char *why) {
    PyErr_SetString(wire_error, why);
    return -1;
}

/* Columns that grow together, each a bytearray. */

#define MOST_COLUMNS 8
static const Py_ssize_t FIRST_ROOM = 1024;

typedef struct {
    int columns;
    Py_ssize_t rows, room;
    Py_ssize_t item[MOST_COLUMNS];
    PyObject *array[MOST_COLUMNS];
    char *data[MOST_COLUMNS];
} Table;

static int table_resize(Table *table, Py_ssize_t room) {
    for (int i = 0; i < table->columns; i++) {
        if (PyByteArray_Resize(table->array[i], room * table->item[i]) < 0) return -1;
        table->data[i] = PyByteArray_AsString(table->array[i]);
    }
    table->room = room;
    return 0;
}

static int table_open(Table *table, int columns, const Py_ssize_t *item) {
    memset(table, 0, sizeof *table);
    for (int i = 0; i < columns; i++) {
        table->item[i] = item[i];
        table->array[i] = PyByteArray_FromStringAndSize(NULL, 0);
        if (!table->array[i]) return -1;
        table->columns = i + 1;
    }
    return table_resize(table, FIRST_ROOM);
}

/* Append a row; return its number, or -1. */
static Py_ssize_t table_row(Table *table) {
    if (table->rows == table->room && table_resize(table, 2 * table->room) < 0) return -1;
    return table->rows++;
}

static void table_close(Table *table) {
    for (int i = 0; i < table->columns; i++) Py_CLEAR(table->array[i]);
}

/* Where the values of one kind of entry go: three columns of a table, and a dict row -> text. */
typedef struct {
    Table *table;
    int first;
    PyObject *text;
} Values;

static int values_set(Values *to, Py_ssize_t row, enum kind kind, double number, uint64_t integer) {
    if (!to->table) return 0;
    ((uint8_t *)to->table->data[to->first])[row] = (uint8_t)kind;
    ((double *)to->table->data[to->first + 1])[row] = number;
    ((uint64_t *)to->table->data[to->first + 2])[row] = integer;
    return 0;
}

static int values_set_text(Values *to, Py_ssize_t row, const uint8_t *begin, Py_ssize_t size) {
    PyObject *text = PyUnicode_DecodeUTF8((const char *)begin, size, "strict");
    if (!text) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) return -1;
        PyErr_Clear();
        return refuse("a metric's text is not UTF-8");
    }
    int failed = 0;
    if (to->table) {
        PyObject *key = PyLong_FromSsize_t(row);
        failed = !key || PyDict_SetItem(to->text, key, text) < 0;
        Py_XDECREF(key);
    }
    Py_DECREF(text);
    return failed ? -1 : values_set(to, row, TEXT, 0, 0);
}

/* The wire format. Positions are pointers; `end` is behind the message that is read. */

static int read_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    const uint8_t *here = *at;
    if (here < end && *here < 0x80) { /* most are this short */
        *value = *here;
        *at = here + 1;
        return 0;
    }
    uint64_t found = 0;
    for (int shift = 0; shift <= 63; shift += 7) {
        if (here >= end) return refuse("an integer is cut");
        uint8_t byte = *here++;
        if (shift == 63 && byte > 1) break;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = found;
            *at = here;
            return 0;
        }
    }
    return refuse("it holds an integer that is too long");
}

/* Read a length; set `stop` behind the content that it announces. */
static int read_size(const uint8_t **at, const uint8_t *end, const uint8_t **stop, const char *beyond) {
    uint64_t size;
    if (read_varint(at, end, &size) < 0) return -1;
    if (size > (uint64_t)(end - *at)) return refuse(beyond);
    *stop = *at + size;
    return 0;
}

/* Read a value, a length and one field of that length, into a row; `at` is left behind it. */
static int read_value(const uint8_t **at, const uint8_t *end, Values *to, Py_ssize_t row) {
    const uint8_t *stop;
    if (read_size(at, end, &stop, "a value is longer than its metric") < 0) return -1;
    const uint8_t *here = *at;
    *at = stop;
    if (here == stop) return values_set(to, row, NONE, 0, 0);
    switch (*here++) {
    case OF_DOUBLE: {
        double number;
        if (stop - here != sizeof number) break;
        memcpy(&number, here, sizeof number);
        return values_set(to, row, DOUBLE, number, 0);
    }
    case OF_FLOAT: {
        float number;
        if (stop - here != sizeof number) break;
        memcpy(&number, here, sizeof number);
        return values_set(to, row, FLOAT, number, 0);
    }
    case OF_UINT32:
    case OF_UINT64: {
        enum kind kind = here[-1] == OF_UINT32 ? UINT32 : UINT64;
        uint64_t integer;
        if (read_varint(&here, stop, &integer) < 0) return -1;
        if (here != stop) break;
        return values_set(to, row, kind, (double)integer, integer);
    }
    case OF_TEXT: {
        const uint8_t *behind;
        if (read_size(&here, stop, &behind, "a metric's value is malformed") < 0) return -1;
        if (behind != stop) break;
        return values_set_text(to, row, here, stop - here);
    }
    }
    return refuse("a metric's value is malformed");
}

static int is_flag(const uint8_t *at, const uint8_t *end) {
    return end - at == 2 && at[0] == FLAG && at[1] <= 1;
}

/* What becomes of the instances; no table if they are only looked at. */
typedef struct {
    Table table; /* owner, index, correlation, value */
    Values correlation, value;
    Py_ssize_t count;
} Instances;

static int read_instances(const uint8_t *at, const uint8_t *end, Py_ssize_t owner, Instances *to) {
    int kept = to->value.table != NULL;
    for (int64_t index = 0; at < end && *at == INSTANCE; index++) {
        const uint8_t *stop;
        at++;
        to->count++;
        if (read_size(&at, end, &stop, "an instance is longer than its metric") < 0) return -1;
        Py_ssize_t row = 0;
        if (kept) {
            if ((row = table_row(&to->table)) < 0) return -1;
            ((int64_t *)to->table.data[0])[row] = owner;
            ((int64_t *)to->table.data[1])[row] = index;
        }
        values_set(&to->correlation, row, NONE, 0, 0);
        values_set(&to->value, row, NONE, 0, 0);
        if (at < stop && *at == CORRELATION) {
            at++;
            if (read_value(&at, stop, &to->correlation, row) < 0) return -1;
        }
        if (at < stop && *at == VALUE) {
            at++;
            if (read_value(&at, stop, &to->value, row) < 0) return -1;
        }
        if (at != stop) return refuse("an instance holds an unknown field or is cut");
    }
    if (at != end && !is_flag(at, end)) return refuse("a metric holds an unknown field among its instances");
    return 0;
}

/* Read the content of a metric entry into a row. */
static int read_metric(const uint8_t *at, const uint8_t *end, uint64_t names, Table *table, Values *values,
                       Instances *instances) {
    Py_ssize_t row = table_row(table);
    if (row < 0) return -1;
    if (at == end || *at != NAME) return refuse("a metric has no name id");
    uint64_t name;
    at++;
    if (read_varint(&at, end, &name) < 0) return -1;
    if (name >= names) {
        PyErr_Format(wire_error, "a metric has the name id %llu, and there are %llu names",
                     (unsigned long long)name, (unsigned long long)names);
        return -1;
    }
    ((int64_t *)table->data[0])[row] = (int64_t)name;
    if (at < end && *at == VALUE) {
        at++;
        if (read_value(&at, end, values, row) < 0) return -1;
    } else {
        values_set(values, row, NONE, 0, 0);
    }
    if (at == end || is_flag(at, end)) return 0;
    if (*at != INSTANCE) return refuse("a metric holds an unknown field");
    return read_instances(at, end, row, instances);
}

/* Return where the first metric of a launch stands. */
static const uint8_t *first_metric(const uint8_t *at, const uint8_t *end) {
    while (at < end && *at < METRIC) {
        int wire = *at & 7;
        uint64_t integer;
        if (wire != 0 && wire != 2) break;
        at++;
        if (wire == 0) {
            if (read_varint(&at, end, &integer) < 0) return NULL;
        } else {
            if (read_size(&at, end, &at, "it has no metrics") < 0) return NULL;
        }
    }
    if (at < end && *at == METRIC) return at;
    refuse("it has no metrics");
    return NULL;
}

/* Find the content of the metric entry at `at`; NULL if it is longer than its launch. */
static const uint8_t *metric_content(const uint8_t *at, const uint8_t *end, const uint8_t **stop) {
    const uint8_t *content = at + 1;
    if (read_size(&content, end, stop, "a metric is longer than its launch") < 0) return NULL;
    if (content - at > 2 && content[-1] == 0) {
        refuse("the length of a metric is encoded oddly");
        return NULL;
    }
    return content;
}

static int read_launches(const uint8_t *raw, Py_ssize_t size, Py_ssize_t launches, const int64_t *start,
                         const int64_t *stop, uint64_t names, Py_ssize_t most, int64_t *extents, Table *table,
                         Values *values, Instances *instances) {
    for (Py_ssize_t launch = 0; launch < launches; launch++) {
        if (start[launch] < 0 || start[launch] > stop[launch] || stop[launch] > size) {
            PyErr_SetString(PyExc_IndexError, "a launch is not within the buffer");
            return -1;
        }
        const uint8_t *end = raw + stop[launch], *content, *next;
        const uint8_t *at = first_metric(raw + start[launch], end);
        if (!at) return -1;
        extents[launch] = at - raw;
        Py_ssize_t before = table->rows;
        while (at < end && *at == METRIC) {
            if (table->rows - before == most) return refuse("it has more metrics than any launch has");
            if (!(content = metric_content(at, end, &next))) return -1;
            if (read_metric(content, next, names, table, values, instances) < 0) return -1;
            at = next;
        }
        extents[launches + launch] = at - raw;
        extents[2 * launches + launch] = table->rows - before;
    }
    return 0;
}

/* Cut the columns to their length; return them in a tuple, from the column `first` on, and the texts behind. */
static PyObject *columns(Table *table, int first, int count, PyObject *text) {
    PyObject *found = PyTuple_New(count + (text != NULL));
    if (!found) return NULL;
    for (int i = 0; i < count; i++) PyTuple_SetItem(found, i, Py_NewRef(table->array[first + i]));
    if (text) PyTuple_SetItem(found, count, Py_NewRef(text));
    return found;
}

PyDoc_STRVAR(decode_doc,
"decode(raw, starts, ends, names, most, instances)\n--\n\n"
"Decode the metrics of launches.\n\n"
"`raw` holds the launches; `starts` and `ends` are int64 arrays that say where. `names` is the number of metric\n"
"names there are, and `most` how many metrics a launch may have. Return a tuple: an int64 array of three parts (where each launch's metrics begin, where they\n"
"end, how many they are); the name ids; (kind, number, integer, text) of the values; how many instances there\n"
"are; and of the instances, or None if they are not wanted and only checked, owner and index, then the same four of the correlation ids and\n"
"of the values. Arrays are bytearrays.");

static PyObject *decode(PyObject *module, PyObject *args) {
    static const Py_ssize_t OF_METRICS[] = {8, 1, 8, 8}, OF_INSTANCES[] = {8, 8, 1, 8, 8, 1, 8, 8};
    Py_buffer raw, starts, ends;
    unsigned long long names;
    Py_ssize_t most;
    int wanted;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*Knp", &raw, &starts, &ends, &names, &most, &wanted)) return NULL;

    PyObject *found = NULL, *extents = NULL;
    Py_ssize_t launches = starts.len / 8;
    Table table = {0};
    Values values = {&table, 1, PyDict_New()};
    Instances instances = {{0}, {NULL, 2, PyDict_New()}, {NULL, 5, PyDict_New()}, 0};
    if (!values.text || !instances.correlation.text || !instances.value.text) goto done;
    if (wanted) instances.correlation.table = instances.value.table = &instances.table;
    if (ends.len != starts.len || ((uintptr_t)starts.buf | (uintptr_t)ends.buf) % sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "starts and ends differ in length or are not aligned");
        goto done;
    }
    extents = PyByteArray_FromStringAndSize(NULL, 0);
    if (!extents || PyByteArray_Resize(extents, 3 * 8 * launches) < 0 || table_open(&table, 4, OF_METRICS) < 0) goto done;
    if (wanted && table_open(&instances.table, 8, OF_INSTANCES) < 0) goto done;
    if (read_launches(raw.buf, raw.len, launches, starts.buf, ends.buf, names, most,
                      (int64_t *)PyByteArray_AsString(extents), &table, &values, &instances) < 0)
        goto done;

    if (table_resize(&table, table.rows) < 0) goto done;
    PyObject *of_values = columns(&table, 1, 3, values.text), *of_instances = NULL;
    if (!wanted) {
        of_instances = Py_NewRef(Py_None);
    } else if (table_resize(&instances.table, instances.table.rows) == 0) {
        of_instances = Py_BuildValue("OONN", instances.table.array[0], instances.table.array[1],
                                     columns(&instances.table, 2, 3, instances.correlation.text),
                                     columns(&instances.table, 5, 3, instances.value.text));
    }
    if (of_values && of_instances)
        found = Py_BuildValue("OOOnO", extents, table.array[0], of_values, instances.count, of_instances);
    Py_XDECREF(of_values);
    Py_XDECREF(of_instances);
done:
    table_close(&table);
    table_close(&instances.table);
    Py_XDECREF(extents);
    Py_XDECREF(values.text);
    Py_XDECREF(instances.correlation.text);
    Py_XDECREF(instances.value.text);
    PyBuffer_Release(&raw);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&ends);
    return found;
}

PyDoc_STRVAR(metrics_end_doc,
"metrics_end(launch)\n--\n\n"
"Return where in a launch's message its metrics end.");

static PyObject *metrics_end(PyObject *module, PyObject *args) {
    Py_buffer raw;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &raw)) return NULL;
    const uint8_t *end = (const uint8_t *)raw.buf + raw.len, *next;
    const uint8_t *at = first_metric(raw.buf, end);
    while (at && at < end && *at == METRIC) at = metric_content(at, end, &next) ? next : NULL;
    PyObject *found = at ? PyLong_FromSsize_t(at - (const uint8_t *)raw.buf) : NULL;
    PyBuffer_Release(&raw);
    return found;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, decode_doc},
    {"metrics_end", metrics_end, METH_VARARGS, metrics_end_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Metric values of many launches, read off the wire.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *wire = PyImport_ImportModule("gpuatlas.ncurep.wire");
    if (!wire) return NULL;
    wire_error = PyObject_GetAttrString(wire, "WireError");
    Py_DECREF(wire);
    PyObject *module = wire_error ? PyModule_Create(&definition) : NULL;
    if (module && PyModule_AddStringConstant(module, "SOURCE_SHA256", SOURCE_SHA256) < 0) Py_CLEAR(module);
    return module;
}
