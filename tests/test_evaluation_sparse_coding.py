"""Sparse coding: the pursuit against a plain one, its limits, and planted dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofuse.errors import CofuseError
from cofuse.evaluation.baselines import sparse_coding
from cofuse.evaluation.baselines.sparse_coding import approximate, batch_omp
from experiments import ksvd
from experiments.ksvd import learn_dictionary


def random_dictionary(m, atoms, seed=0):
    dictionary = np.random.default_rng(seed).standard_normal((m, atoms))
    return dictionary / np.linalg.norm(dictionary, axis=0)


def plain_omp(signal, dictionary, tolerance, most):
    """Orthogonal matching pursuit as it is defined, by a new least-squares fit in every step."""
    chosen: list[int] = []
    code = np.zeros(dictionary.shape[1])
    residual = signal.copy()
    while len(chosen) < most and np.linalg.norm(residual) > tolerance:
        chosen.append(int(np.abs(dictionary.T @ residual).argmax()))
        fit = np.linalg.lstsq(dictionary[:, chosen], signal, rcond=None)[0]
        residual = signal - dictionary[:, chosen] @ fit
        code[:] = 0
        code[chosen] = fit
    return code


@pytest.mark.parametrize(("tolerance", "most"), [(0.0, 6), (12.0, 25), (2.0, 25)])
def test_agrees_with_plain_omp(tolerance, most):
    dictionary = random_dictionary(25, 60)
    signals = 10.0 * np.random.default_rng(1).standard_normal((25, 80))
    codes = batch_omp(signals, dictionary, tolerance=tolerance, max_atoms=most).toarray()
    expected = np.stack([plain_omp(x, dictionary, tolerance, most) for x in signals.T], axis=1)
    np.testing.assert_array_equal(codes != 0, expected != 0)
    np.testing.assert_allclose(codes, expected, atol=2e-3)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_orthonormal_dictionary_keeps_the_largest_products(count):
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((16, 16)))[0]
    signals = np.random.default_rng(3).standard_normal((16, 50))
    codes = batch_omp(signals, basis, max_atoms=count).toarray()
    products = basis.T @ signals
    cut = np.sort(np.abs(products), axis=0)[-count]
    np.testing.assert_allclose(codes, np.where(np.abs(products) >= cut, products, 0), atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    tolerance=st.floats(0.05, 50.0),
    scale=st.floats(1.0, 100.0),
    seed=st.integers(0, 2**31),
)
def test_residual_respects_the_tolerance_and_needs_every_atom(tolerance, scale, seed):
    dictionary = random_dictionary(36, 100)
    signals = scale * np.random.default_rng(seed).standard_normal((36, 30))
    codes = batch_omp(signals, dictionary, tolerance=tolerance)
    residual = np.linalg.norm(signals - dictionary @ codes.toarray(), axis=0)
    assert (residual <= tolerance * 1.001 + 1e-3).all()
    most = int(np.diff(codes.indptr).max())
    if most > 1:
        shorter = batch_omp(signals, dictionary, tolerance=tolerance, max_atoms=most - 1)
        left = np.linalg.norm(signals - dictionary @ shorter.toarray(), axis=0)
        assert left.max() > tolerance * 0.999


def test_approximation_is_the_dictionary_times_the_code(monkeypatch):
    monkeypatch.setattr(sparse_coding, "_CHUNK", 37)  # several chunks, the last one short
    dictionary = random_dictionary(49, 256)
    signals = 30.0 * np.random.default_rng(5).standard_normal((49, 200))
    fitted, norms = approximate(signals, dictionary, tolerance=20.0)
    codes = batch_omp(signals, dictionary, tolerance=20.0)
    assert codes.shape == (256, 200)
    np.testing.assert_allclose(fitted, dictionary @ codes.toarray(), atol=1e-2)
    np.testing.assert_allclose(norms, np.abs(codes).sum(axis=0), rtol=1e-5)


def test_signals_outside_the_span_end_without_an_endless_loop():
    dictionary = random_dictionary(12, 30)
    dictionary[:4] = 0
    dictionary /= np.linalg.norm(dictionary, axis=0)
    signals = np.concatenate([np.zeros((12, 1)), np.eye(12), np.ones((12, 1))], axis=1)
    codes = batch_omp(signals, dictionary, tolerance=1e-4)
    residual = signals - dictionary @ codes.toarray()
    np.testing.assert_allclose(residual[:4], signals[:4], atol=1e-5)
    np.testing.assert_allclose(residual[4:], 0.0, atol=2e-3)
    assert codes[:, [0]].nnz == 0


def test_no_signals_give_no_codes():
    dictionary = random_dictionary(9, 12)
    assert batch_omp(np.zeros((9, 0)), dictionary).shape == (12, 0)
    assert approximate(np.zeros((9, 0)), dictionary)[0].shape == (9, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signals": np.zeros((8, 4))}, "cannot be coded"),
        ({"signals": np.full((9, 4), np.nan)}, "finite"),
        ({"dictionary": 2 * random_dictionary(9, 12)}, "unit length"),
        ({"tolerance": -1.0}, "negative"),
        ({"max_atoms": 0}, "max_atoms is 0"),
    ],
)
def test_refuses_what_cannot_be_coded(change, words):
    arguments = {"signals": np.zeros((9, 4)), "dictionary": random_dictionary(9, 12)} | change
    with pytest.raises(CofuseError, match=words):
        batch_omp(arguments.pop("signals"), arguments.pop("dictionary"), **arguments)


def planted(noise, seed, count=1500):
    """The experiment of Aharon, Elad and Bruckstein: 50 atoms of 20 numbers, 3 a signal."""
    rng = np.random.default_rng(seed)
    truth = random_dictionary(20, 50, seed)
    codes = np.zeros((50, count))
    for column in codes.T:
        column[rng.choice(50, 3, replace=False)] = rng.standard_normal(3)
    signals = truth @ codes
    return truth, signals + noise * signals.std() * rng.standard_normal(signals.shape)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 46), (0.1, 46)])  # 0.1: 20 dB
def test_planted_dictionary_is_recovered(noise, least):
    truth, signals = planted(noise, seed=6)
    learned = learn_dictionary(signals, atoms=50, sparsity=3, rounds=80, seed=0)
    nearest = np.abs(truth.T @ learned.dictionary).max(axis=1)
    assert (nearest > 0.99).sum() >= least


def test_learning_is_deterministic_and_lowers_the_error():
    signals = planted(0.1, seed=7, count=600)[1]
    first = learn_dictionary(signals, atoms=50, sparsity=3, rounds=12)
    again = learn_dictionary(signals, atoms=50, sparsity=3, rounds=12)
    np.testing.assert_array_equal(first.dictionary, again.dictionary)
    np.testing.assert_allclose(np.linalg.norm(first.dictionary, axis=0), 1.0, atol=1e-5)
    errors = first.trace.history["rms_error"]
    assert errors[-1] < 0.6 * errors[0]
    other = learn_dictionary(signals, atoms=50, sparsity=3, rounds=12, seed=1)
    assert not np.array_equal(first.dictionary, other.dictionary)


def test_one_update_round_never_raises_the_error():
    signals = planted(0.1, seed=8, count=400)[1].astype(np.float32)
    dictionary = random_dictionary(20, 50).astype(np.float32)
    codes = batch_omp(signals, dictionary, max_atoms=3).tocsr()
    residual = np.ascontiguousarray((signals - dictionary @ codes.toarray()).T)
    before, rows = np.linalg.norm(residual), np.ascontiguousarray(dictionary.T)
    ksvd._update_atoms(rows, codes.indptr, codes.indices, codes.data, np.arange(50), residual)
    assert np.linalg.norm(residual) < before
    np.testing.assert_allclose(residual, (signals - rows.T @ codes.toarray()).T, atol=1e-4)


def test_repeated_atoms_are_replaced():
    rng = np.random.default_rng(9)
    few = random_dictionary(16, 3)
    signals = np.concatenate([np.repeat(few, 40, axis=1), rng.standard_normal((16, 200))], axis=1)
    learned = learn_dictionary(signals, atoms=24, sparsity=2, rounds=15, seed=3)
    cosines = np.abs(np.triu(learned.dictionary.T @ learned.dictionary, k=1))
    assert sum(learned.trace.history["replaced"]) > 0
    assert cosines.max() < 0.995


def test_learning_stops_when_nothing_is_gained():
    basis = np.linalg.qr(np.random.default_rng(10).standard_normal((8, 8)))[0]
    signals = np.repeat(basis, 20, axis=1) * np.linspace(1, 2, 160)
    learned = learn_dictionary(signals, atoms=8, sparsity=8, rounds=50, seed=0)
    assert learned.trace.converged
    assert learned.trace.iterations < 50


def test_learning_refuses_too_few_signals_and_odd_settings():
    with pytest.raises(CofuseError, match="cannot teach"):
        learn_dictionary(np.eye(8), atoms=9, sparsity=2)
    with pytest.raises(CofuseError, match="at least 1"):
        learn_dictionary(np.eye(8), atoms=4, sparsity=9)
