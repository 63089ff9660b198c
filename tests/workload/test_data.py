"""Phantoms, NIfTI pairs, preparation: exact values, and one clear error for each bad input."""

import gzip
import json
from hashlib import sha256

import nibabel
import numpy as np
import pytest
import torch

from gpuatlas.errors import ConfigError, InputRefused
from gpuatlas.workload.data import batches, open_dataset, order
from gpuatlas.workload.phantom import phantom, write_phantoms
from gpuatlas.workload.volumes import find_pairs, prepare, resized


def write(path, array, affine=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4) if affine is None else affine), path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Two good pairs of 8³."""
    write_phantoms(tmp_path, volumes=2, size=8, seed=0)
    return tmp_path


def dataset(folder, size=8):
    return open_dataset(folder / "images", folder / "masks", folder / "cache", size)


def test_phantoms_are_the_same_bits_everywhere():
    image, mask = phantom(16, seed=0, index=3)
    assert sha256(image.tobytes() + mask.tobytes()).hexdigest()[:12] == "f48e481494f0"


def test_phantom_looks_like_a_head():
    for index in range(4):
        image, mask = phantom(48, seed=1, index=index)
        assert 0.15 < (mask > 0).mean() < 0.3
        assert 0.0003 < (mask == 2).mean() < 0.05
        assert image[0].max() == 0, "air at the border"
        brain, tumour = image[mask == 1].mean(), image[mask == 2].mean()
        assert tumour > 1.2 * brain > 0
    assert not np.array_equal(phantom(16, 0, 0)[0], phantom(16, 0, 1)[0])
    assert not np.array_equal(phantom(16, 0, 0)[0], phantom(16, 1, 0)[0])


def test_phantom_files_are_reproducible(tmp_path):
    for name in ("a", "b"):
        write_phantoms(tmp_path / name, volumes=2, size=16, seed=5)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 5
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)
    about = json.loads((tmp_path / "a/dataset.json").read_text())
    assert about == {"phantom": 1, "volumes": 2, "size": 16, "seed": 5}
    with pytest.raises(ConfigError, match="at least 1 volume"):
        write_phantoms(tmp_path, volumes=0, size=16, seed=0)


def test_preparation_values(tmp_path):
    """Scaling by slice of the last axis, one-hot labels in −1/1, depth first."""
    image = np.zeros((4, 4, 4), np.float32)
    image[1, 2, 0], image[3, 0, 0] = 10, 40  # slice 0: 0..40
    image[..., 1] = 7  # constant slice
    image[0, 0, 2] = -5  # slice 2: -5..0
    labels = np.zeros((4, 4, 4), np.uint8)
    labels[1, 2, 3], labels[2, 1, 0] = 1, 2
    write(tmp_path / "i/head-7.nii.gz", image)
    write(tmp_path / "m/labels-7.nii", labels)
    (pair,) = find_pairs(tmp_path / "i", tmp_path / "m")
    ready = prepare(pair, 4)
    assert ready.image.shape == (1, 4, 4, 4)
    assert ready.image.dtype == np.float32
    assert ready.image[0, 0, 2, 1] == pytest.approx(-0.5)
    assert ready.image[0, 0, 0, 3] == 1
    assert (ready.image[0, 1] == -1).all()
    assert ready.image[0, 2, 0, 0] == -1
    assert ready.image[0, 2, 1, 1] == 1
    assert ready.mask.shape == (2, 4, 4, 4)
    assert set(np.unique(ready.mask)) == {-1, 1}
    assert np.argwhere(ready.mask[0] == 1).tolist() == [[3, 2, 1]]
    assert np.argwhere(ready.mask[1] == 1).tolist() == [[0, 1, 2]]


def test_resizing_agrees_with_torch():
    volume = np.random.default_rng(0).random((5, 8, 6))
    for shape in ((10, 8, 6), (4, 4, 4), (7, 9, 3)):
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(volume)[None, None], size=shape, mode="trilinear"
        )[0, 0]
        np.testing.assert_allclose(resized(volume, shape), expected.numpy(), atol=1e-12)


def test_scaling_of_the_header_is_applied(tmp_path):
    stored = nibabel.Nifti1Image(np.arange(64, dtype=np.int16).reshape(4, 4, 4), np.eye(4))
    stored.header.set_slope_inter(2.0, -3.0)
    (tmp_path / "i").mkdir()
    nibabel.save(stored, tmp_path / "i/1.nii")
    from gpuatlas.workload.volumes import read_nifti

    assert read_nifti(tmp_path / "i/1.nii")[0, 0, 1] == pytest.approx(2 * 1 - 3, abs=2.1)


def test_cache_and_checksum(folder):
    first = dataset(folder)
    stamps = {path: path.stat().st_mtime_ns for path in first.files}
    again = dataset(folder)
    assert again == first
    assert stamps == {path: path.stat().st_mtime_ns for path in again.files}, "nothing prepared twice"
    # A cut cache file is prepared again; the same volumes elsewhere have the same checksum.
    first.files[0].write_bytes(first.files[0].read_bytes()[:500])
    assert dataset(folder) == first
    assert first.load(0).image.shape == (1, 8, 8, 8)
    (folder / "other").mkdir()
    assert open_dataset(folder / "images", folder / "masks", folder / "other", 8).checksum == first.checksum
    # One voxel of one mask changes it.
    path = folder / "masks/mask_0001.nii.gz"
    labels = np.asarray(nibabel.load(path).dataobj).copy()
    labels[0, 0, 0] = 1
    write(path, labels)
    assert dataset(folder).checksum != first.checksum
    assert open_dataset(folder / "images", folder / "masks", folder / "cache", 16).checksum != first.checksum


def test_order_is_a_permutation_by_seed_and_epoch():
    assert sorted(order(10, 0, 0)) == list(range(10))
    assert order(10, 0, 0) == order(10, 0, 0)
    assert len({tuple(order(10, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_batches_start_anywhere(folder):
    ready = dataset(folder)
    device = torch.device("cpu")
    whole = [image for image, _, _ in batches(ready, range(6), 0, device)]
    rest = [image for image, _, _ in batches(ready, range(3, 6), 0, device)]
    assert len(whole) == 6
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], rest, strict=True))
    for epoch in range(3):
        assert not torch.equal(whole[2 * epoch], whole[2 * epoch + 1]), "each volume once an epoch"


def broken(name, folder):
    """Make one input of `folder` bad; return the file to be named and what must be said."""
    image, mask = folder / "images/image_0001.nii.gz", folder / "masks/mask_0001.nii.gz"
    labels = np.asarray(nibabel.load(mask).dataobj)
    voxels = np.asarray(nibabel.load(image).dataobj)
    match name:
        case "image without mask":
            mask.unlink()
            return image, "no partner"
        case "mask without image":
            image.unlink()
            return mask, "no partner"
        case "two masks":
            write(folder / "masks/segmentation_0001.nii", labels)
            return folder / "masks/segmentation_0001.nii", "same digits"
        case "no digits":
            write(folder / "images/head.nii", voxels)
            return folder / "images/head.nii", "no digits"
        case "4D image":
            return write(image, np.stack([voxels, voxels], -1)), "4D"
        case "4D mask":
            return write(mask, labels[..., None]), "4D"
        case "NaN":
            values = voxels.astype(np.float32)
            values[1, 1, 1] = np.nan
            return write(image, values), "NaN or infinite"
        case "infinite":
            values = voxels.astype(np.float32)
            values[1, 1, 1] = np.inf
            return write(image, values), "NaN or infinite"
        case "empty mask":
            return write(mask, np.zeros_like(labels)), "is empty"
        case "unknown label":
            values = labels.copy()
            values[2, 2, 2] = 4
            return write(mask, values), "unknown label 4"
        case "fractional label":
            values = labels.astype(np.float32)
            values[2, 2, 2] = 0.5
            return write(mask, values), "unknown label 0.5"
        case "zero size":
            return write(image, voxels[:, :, :0]), "holds no voxel"
        case "cut gzip":
            image.write_bytes(image.read_bytes()[:-200])
            return image, "cut or damaged"
        case "cut header":
            image.write_bytes(image.read_bytes()[:60])
            return image, "cut or damaged"
        case "flipped bits":
            content = bytearray(image.read_bytes())
            content[len(content) // 2 : len(content) // 2 + 8] = b"\xff" * 8
            image.write_bytes(content)
            return image, "cut or damaged"
        case "cut nii":
            plain = folder / "images/image_0001.nii"
            plain.write_bytes(gzip.decompress(image.read_bytes())[:-100])
            image.unlink()
            return plain, "cut or damaged"
        case "text":
            image.write_bytes(gzip.compress(b"not an image " * 100))
            return image, "not a NIfTI"
        case "empty file":
            image.write_bytes(b"")
            return image, "is empty"
        case "another shape":
            return write(mask, labels[:4]), "shape"
    raise AssertionError(name)


BAD = (
    "image without mask",
    "mask without image",
    "two masks",
    "no digits",
    "4D image",
    "4D mask",
    "NaN",
    "infinite",
    "empty mask",
    "unknown label",
    "fractional label",
    "zero size",
    "cut gzip",
    "cut header",
    "flipped bits",
    "cut nii",
    "text",
    "empty file",
    "another shape",
)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_error_naming_the_file(folder, name):
    path, said = broken(name, folder)
    with pytest.raises(InputRefused, match=said) as caught:
        dataset(folder)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_folders(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        dataset(tmp_path)
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    with pytest.raises(ConfigError, match="holds no NIfTI"):
        dataset(tmp_path)
