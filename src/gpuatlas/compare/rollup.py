"""From launches to one figure: sums, time-weighted means, ratios of sums, or the reason why there is none."""

import numpy as np

from gpuatlas.compare.captures import Capture, Floats, Mask
from gpuatlas.compare.catalog import Candidate, Formula, Metric
from gpuatlas.compare.rows import Figure

# A figure over a capture stands if the launches behind it make up this share of its GPU time.
ENOUGH = 0.99


def evaluate(metric: Metric, capture: Capture, where: Mask) -> Figure:
    """Compute a metric of the catalogue over some launches of a capture.

    Parameters
    ----------
    metric
        The metric, with its candidates.
    capture
        The capture.
    where
        Which launches, shape (launches,).

    Returns
    -------
    Figure
        None with a reason where no candidate was collected, where too many launches lack it, or where the
        figure is undefined (0/0). A launch for which Nsight Compute stored NaN takes no part.
    """
    reason = f"not collected: {metric.candidates[0].numerator.text}" if metric.candidates else "not collected"
    for number, candidate in enumerate(metric.candidates_for(capture.compute_capability)):
        stored = _stored(candidate, capture) & where
        if not stored.any():
            continue
        time = np.nan_to_num(capture.time)
        share = time[stored].sum() / time[where].sum() if time[where].sum() > 0 else 0.0
        lost = int((where & ~stored).sum())
        if lost and (share < ENOUGH or candidate.denominator is None):
            reason = (
                f"stored for {int(stored.sum())} of {int(where.sum())} launches ({share:.1%} of GPU time)"
            )
            continue
        value = _value(candidate, capture, stored)
        if value is None:
            return Figure(None, "undefined: nothing was counted (0/0)")
        notes = [candidate.note or (f"from {candidate.numerator.text}" if number else None)]
        if lost:
            notes.append(f"without {lost} launches that lack it ({1 - share:.2%} of GPU time)")
        return Figure(value, "; ".join(note for note in notes if note) or None)
    return Figure(None, reason)


def _stored(candidate: Candidate, capture: Capture) -> Mask:
    """Tell for which launches everything that the candidate needs is stored."""
    mask = capture.everything()
    formulas = [candidate.numerator, *([candidate.denominator] if candidate.denominator else [])]
    for formula in formulas:
        for name in formula.names():
            mask = mask & capture.present.get(name, np.zeros_like(mask))
    return mask


def apply(formula: Formula, capture: Capture) -> Floats:
    """Return the formula's value for every launch, shape (launches,)."""
    total = np.zeros(len(capture.kernels))
    for constant, names in formula.products:
        product = np.full(len(total), constant)
        for name in names:
            product = product * capture.columns[name]
        total = total + product
    return total


def _value(candidate: Candidate, capture: Capture, where: Mask) -> float | None:
    numerator = (apply(candidate.numerator, capture) * capture.weight)[where]
    if candidate.denominator is None:
        total = float(numerator.sum())
        return None if np.isnan(total) else total
    denominator = (apply(candidate.denominator, capture) * capture.weight)[where]
    defined = ~(np.isnan(numerator) | np.isnan(denominator))
    below = float(denominator[defined].sum())
    return candidate.scale * float(numerator[defined].sum()) / below if below > 0 else None
