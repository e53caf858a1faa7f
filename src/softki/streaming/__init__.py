"""Rows that do not fit into memory, as batches for training.

A `Source` reads rows again and again, a block at a time. `StreamedRows` makes a first pass over
it, for the statistics of the columns, and then gives standardised minibatches and chunks.
"""

from softki.streaming.open import open_source
from softki.streaming.source import Source
from softki.streaming.streamed_rows import StreamedRows

__all__ = ["Source", "StreamedRows", "open_source"]
