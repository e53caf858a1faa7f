"""A progress bar for a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from softki.training.report import Callback, Event


@contextmanager
def progress(scale: float = 1.0) -> Iterator[list[Callback]]:
    """Callbacks that show a bar with the best held-out RMSE so far, times the scale."""
    from tqdm.auto import tqdm

    best, before = float("inf"), 0
    with tqdm(desc="fit", unit="step") as bar:

        def show(event: Event) -> None:
            nonlocal best, before
            # A fit may train several times, for other sizes or folds, and go on from a checkpoint.
            if event.step != before + 1 or event.step == 1:
                bar.reset(event.steps)
                bar.update(event.step - 1)
                best = float("inf")
            before = event.step
            if event.held_out is not None and event.held_out.rmse < best:
                best = event.held_out.rmse
                bar.set_postfix_str(f"held-out RMSE {scale * best:.4g}", refresh=False)
            bar.update()

        yield [show]
