"""Training steps as one CUDA graph: exact gradient and Adam, with nothing read back.

A step is two hundred small kernels, which take longer to launch than to run. They are captured once
and replayed. A step whose factorisation fails or whose gradient is not finite leaves the
parameters as they are, and is done again outside the graph, with whatever fallback there is, after
the other steps of its stretch. Where nothing can be captured, every step is done outside.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from softki.batches import Batch, Data, Minibatches
from softki.features import WeightedBatches
from softki.interpolation.backends import backend_for, why_plain
from softki.interpolation.weights import Backend, PlainBackend
from softki.kernels.stationary import KERNELS
from softki.linalg.cuda import side_stream
from softki.model import SoftKI
from softki.objective.exact_likelihood import Adjoint, add_gradients, exact, gradients
from softki.solvers import factorise
from softki.training.data import InMemoryRows, TrainingData
from softki.training.trainer import Outcome, Trainer, set_rate

# Steps outside the graph before it is captured: libraries set themselves up, Adam its state.
_WARM_UP = 3


def why_not(
    model: SoftKI, data: TrainingData, objective: object, is_one_batch: bool, backend: type[Backend]
) -> str | None:
    """The reason for which steps on the data cannot be captured; None if they can."""
    if backend is PlainBackend:
        return why_plain(data.inputs, len(model.points)) or "the plain backend was asked for"
    if objective not in ("stabilised", "exact"):
        return "the objective is not the exact one"
    if type(model.kernel) not in KERNELS.values():  # others may wait for the host
        return "the kernel is not one of softki's"
    if data.knows_noise:
        return "the noise of the rows is known"
    if not is_one_batch:
        return "a step has several batches, or all rows of a stream"
    return None


class StepRows(Protocol):
    """The rows of a step, always as many and in the same place."""

    @property
    def batches(self) -> Sequence[Batch]:
        """One batch; to take it is part of the graph."""

    def load(self, step: int) -> None:
        """Let it be the rows of that step, counted from 0."""


class IndexedRows:
    """Rows of a table on the device, by their index.

    Args:
        data: all rows.
        index: function that gives the index of the rows of a step, counted from 0.
    """

    def __init__(self, data: Data, index: Callable[[int], Tensor]) -> None:
        self._index_of, self._index = index, index(0).clone()
        self.batches = data.batch(self._index)

    def load(self, step: int) -> None:
        """Let the index be that of the step."""
        self._index.copy_(self._index_of(step))


class CopiedRows:
    """Rows that come one batch after the other.

    Args:
        place: batch that the rows of every step are copied to.
        batch: the rows of a step, counted from 0.
    """

    def __init__(self, place: Batch, batch: Callable[[int], Batch]) -> None:
        self._batch_of, self.batches = batch, [place]

    def load(self, step: int) -> None:
        """Copy the rows of the step to the place of all."""
        rows = self._batch_of(step)
        self.batches[0].x.copy_(rows.x)
        self.batches[0].y.copy_(rows.y)


class GraphSteps:
    """Training steps by replays of a graph.

    Args:
        model: model to train in place.
        rows: rows of the steps, on a CUDA device.
        optimizer: Adam, `fused` and `capturable`.
        set_rate: sets the learning rate of a step, counted from 1.
        longest: the most steps of a call of `run`.

    Attributes:
        trouble: why the steps could not be captured, if they could not.
    """

    def __init__(
        self,
        model: SoftKI,
        rows: StepRows,
        optimizer: torch.optim.Adam,
        set_rate: Callable[[int], None],
        longest: int,
    ) -> None:
        self._model, self._rows, self._optimizer = model, rows, optimizer
        self._set_rate = set_rate
        self._graph: torch.cuda.CUDAGraph | None = None
        self._first: int | None = None  # 1, or where a training was resumed
        device = model.points.device
        self._slot = torch.zeros(1, dtype=torch.long, device=device)
        self._outcomes = torch.zeros(longest, 2, dtype=torch.float64, device=device)
        self.trouble: str | None = None

    def run(self, steps: range) -> Iterator[tuple[int, float | None]]:
        """Do these steps; then yield each with its log likelihood, or None where it failed."""
        if self._first is None:
            self._first = steps.start
        if self._graph is None:
            left = max(0, self._first + _WARM_UP - steps.start)
            yield from ((step, None) for step in steps[:left])
            steps = steps[left:]
        if self._graph is None and self.trouble is None and len(steps):
            self._capture()
        if self._graph is None:
            yield from ((step, None) for step in steps)
            return
        self._slot.zero_()
        for step in steps:
            self._rows.load(step - 1)
            self._set_rate(step)
            self._graph.replay()
        for step, (log_likelihood, failed) in zip(
            steps, self._outcomes[: len(steps)].tolist(), strict=True
        ):
            yield step, None if failed else log_likelihood

    def _capture(self) -> None:
        self._optimizer.zero_grad()
        graph = torch.cuda.CUDAGraph()
        try:
            # Rows of a stream are prepared in another thread, which may take memory meanwhile.
            capture = torch.cuda.graph(graph, capture_error_mode="thread_local")
            with warnings.catch_warnings(), capture:
                # Parameters are used on several streams, which are joined before the gradients.
                warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # after an error
                self._step()
        except RuntimeError as error:
            self.trouble = f"it could not be captured ({(str(error).splitlines() or [''])[0]})"
            return
        self._graph = graph

    def _step(self) -> None:
        adjoint = overlapped_backward(self._model, self._rows.batches)
        log_likelihood = adjoint.log_likelihood()
        assert log_likelihood is not None
        gradients = [p.grad.reshape(-1) for p in self._model.parameters() if p.grad is not None]
        failed = (0 * torch.cat(gradients).sum()).ne(0).float()  # NaN is not 0
        with side_stream(self._slot.device) as join:
            outcome = torch.stack([log_likelihood, failed.double()])
            self._outcomes.index_copy_(0, self._slot, outcome[None])
            self._slot += 1
        self._optimizer.found_inf = failed  # type: ignore[attr-defined]
        try:
            self._optimizer.step()
        finally:  # it belongs to the graph, and steps outside must not see it
            del self._optimizer.found_inf  # type: ignore[attr-defined]
        join()


def overlapped_backward(model: SoftKI, batches: Sequence[Batch]) -> Adjoint:
    """`softki.objective.backward` of the exact objective, with what is independent side by side.

    Noise, kernel matrix, its factor and their gradients are small and wait for each other; they
    run on side streams beside the passes over the rows.
    """
    device = model.points.device
    with side_stream(device, lane=1) as join_noise:
        noise_variance = model.noise_variance
    with side_stream(device):
        K = model.kernel_matrix()
    join_noise()
    rows = WeightedBatches(model, batches)
    with side_stream(device) as join_factor:
        L = factorise(K.detach(), "the kernel matrix K")
    _ = rows.statistics
    join_factor()
    adjoint = exact(rows, K.detach(), noise_variance.detach(), L)
    parameters = [p for p in model.parameters() if p.requires_grad]
    with side_stream(device) as join_kernel:
        of_kernel = gradients(parameters, [(K, adjoint.kernel())])
    with side_stream(device, lane=1) as join_noise:
        adjoint.log_likelihood()
        of_noise = gradients(parameters, [(noise_variance, adjoint.noise())])
    of_rows = gradients(parameters, rows.pull_back(adjoint.weights))
    join_kernel()
    join_noise()
    add_gradients(parameters, of_kernel, of_noise, of_rows)
    return adjoint


class GraphTrainer(Trainer):
    """Trains on a GPU, by replays of a graph wherever the steps can be captured.

    The steps from one evaluation to the next are replayed at once, and reported one by one.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._graph = self._graph_steps()
        self._replayed: Iterator[tuple[int, float | None]] = iter(())
        self._before: dict[str, Any] | None = None  # the parameters before the replayed steps

    def step(self, step: int) -> Outcome:
        """One step, of the graph or, where that failed, outside it."""
        if self._graph is None:
            return super().step(step)
        found = next(self._replayed, None)
        if found is None:
            self._before = copy.deepcopy(self.model.state_dict())
            end = min(step + self.stretch, self.settings.steps + 1)
            self._replayed = self._graph.run(range(step, end))
            found = next(self._replayed)
        log_likelihood = found[1]
        before, self._before = self._before, None
        if log_likelihood is None:
            if self._graph.trouble is not None:
                self.report.backend = f"{self._backend.name}, no CUDA graph: {self._graph.trouble}"
            return super().step(step)
        if self.held_out is None and before is not None:
            self.best_state = before
        return Outcome("exact", log_likelihood)

    @property
    def _backend(self) -> type[Backend]:
        return backend_for(self.data.inputs, len(self.model.points))

    def _graph_steps(self) -> GraphSteps | None:
        """Steps in a CUDA graph, where they can be captured."""
        data, backend = self.data, self._backend
        is_one_batch = self.minibatches is not None or (
            isinstance(data, InMemoryRows) and len(data.chunks(len(self.model.points))) == 1
        )
        reason = why_not(self.model, data, self.settings.objective, is_one_batch, backend)
        if reason is not None:
            self.report.backend = f"{backend.name}, no CUDA graph: {reason}"
            return None
        self.report.backend = f"{backend.name} in a CUDA graph"
        set_graph_rate = partial(set_rate, self.optimizer, self.settings)
        return GraphSteps(
            self.model, self._step_rows(), self.optimizer, set_graph_rate, self.stretch
        )

    def _step_rows(self) -> StepRows:
        """The rows of a step, always in the same place."""
        data, minibatches = self.data, self.minibatches
        if isinstance(data, InMemoryRows):
            training = data.training
            if isinstance(minibatches, Minibatches):
                return IndexedRows(data.data, minibatches.index)
            return IndexedRows(data.data, lambda step: training)
        assert minibatches is not None
        assert self.settings.batch_size is not None
        x, y = (
            torch.zeros(self.settings.batch_size, c, dtype=data.dtype, device=data.device)
            for c in (data.dimension, data.targets)
        )
        return CopiedRows(Batch(x, y), minibatches.batch)
