"""Verdicts on the claims of papers, from the figures: one rule for all pages.

A claim is confirmed where ours reaches the paper's number within a tenth of it, weaker where ours goes the paper's way
and falls short of that, and not confirmed where it goes the other way.
"""
CONFIRMED, WEAKER, NOT_CONFIRMED = "confirmed", "weaker", "not confirmed"
NOT_TESTABLE = "not testable here"
TOLERANCE = 0.1  # of the paper's number


def more(ours, papers, least=0.0):
    """Ours should be as large as the paper's; at or below `least` it shows the opposite."""
    if ours >= papers - TOLERANCE * abs(papers):
        return CONFIRMED
    return WEAKER if ours > least else NOT_CONFIRMED


def less(ours, papers, most):
    """Ours should be as small as the paper's; at or above `most` it shows the opposite."""
    if ours <= papers + TOLERANCE * abs(papers):
        return CONFIRMED
    return WEAKER if ours < most else NOT_CONFIRMED


def over_variants(headline, variants):
    """Of the verdicts with the headline's data, the lowest; it names its dependence where a variant has another one."""
    order = (CONFIRMED, WEAKER, NOT_CONFIRMED)
    lowest = max(headline, key=order.index)
    others = sorted({verdict for verdict in variants if verdict != lowest}, key=order.index)
    return f"{lowest} (other curves: {', '.join(others)})" if others else lowest


def all_hold(holds):
    """For claims without a number, of several cases."""
    holds = list(holds)
    return CONFIRMED if all(holds) else WEAKER if any(holds) else NOT_CONFIRMED
