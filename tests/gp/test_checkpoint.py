"""One file of plain arrays: what comes back, what is refused, and that there is never half of it."""

import os
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from posteriori.gp.checkpoint import Checkpoint, Position  # noqa: E402


class Pair(NamedTuple):
    free: Any
    moments: Any


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def state():
    rng = np.random.default_rng(0)
    return Pair(
        {
            "kernel": {"b": jnp.asarray(rng.normal(size=3)), "a": jnp.float64(1 / 3)},
            "Z": jnp.asarray(rng.normal(size=(4, 2))),
        },
        [jnp.arange(5), (jnp.zeros((2, 0)), jnp.asarray(np.nextafter(1.0, 2.0)))],
    )


POSITION = Position(120, 0.1 / 3, n_cuts=2, since=(-1e300, -1 / 3, -0.1), jitter=1e-4)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back_to_the_last_bit(tmp_path, state):
    kept = Checkpoint(tmp_path / "fit.npz", "mark")
    assert kept.load(state) is None
    kept.save(state, POSITION)
    again, position = kept.load(jax.tree.map(jnp.zeros_like, state))
    assert position == POSITION
    assert jax.tree.structure(again) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert files(tmp_path) == ["fit.npz"]


def test_the_start_of_a_climb_can_be_saved_too(tmp_path, state):
    kept = Checkpoint(tmp_path / "fit", "mark")
    kept.save(state, Position(0, 0.1))
    assert kept.load(state)[1] == Position(0, 0.1)


def test_names_are_taken_as_they_are_and_folders_made(tmp_path, state):
    path = tmp_path / "new" / "folder" / "a fit without suffix"
    Checkpoint(str(path), "mark").save(state, POSITION)
    assert path.is_file()
    assert Checkpoint(path, "mark").load(state)[1] == POSITION


def test_the_newer_one_replaces_the_older(tmp_path, state):
    kept = Checkpoint(tmp_path / "fit", "mark")
    kept.save(state, POSITION)
    kept.save(jax.tree.map(lambda a: a + 40, state), POSITION._replace(n_steps=140))
    again, position = kept.load(state)
    assert position.n_steps == 140
    np.testing.assert_array_equal(again.free["Z"], state.free["Z"] + 40)
    assert files(tmp_path) == ["fit"]


def test_removing_it_twice_is_no_error(tmp_path, state):
    kept = Checkpoint(tmp_path / "fit", "mark")
    kept.save(state, POSITION)
    kept.remove()
    kept.remove()
    assert files(tmp_path) == []


# What is refused


def test_another_fit_is_refused_and_left_alone(tmp_path, state):
    path = tmp_path / "fit"
    Checkpoint(path, "mark").save(state, POSITION)
    with pytest.raises(ValueError, match=r"checkpoint='.*fit' belongs to another fit.*remove it, or choose another"):
        Checkpoint(path, "other").load(state)
    for other in (state._replace(moments=[]), state._replace(free=state.free | {"Z": jnp.zeros((4, 3))})):
        with pytest.raises(ValueError, match="belongs to another fit"):
            Checkpoint(path, "mark").load(other)
    assert Checkpoint(path, "mark").load(state)[1] == POSITION


def not_a_head(path):
    with path.open("wb") as file:
        np.savez(file, head=np.array("no JSON"), leaf_0=np.zeros(3))


def no_head(path):
    with path.open("wb") as file:
        np.savez(file, leaf_0=np.zeros(3))


def pickled(path):
    with path.open("wb") as file:
        np.savez(file, head=np.array([{"fingerprint": "mark"}], dtype=object))


def cut_short(path):
    Checkpoint(path, "mark").save({"a": jnp.ones(1000)}, POSITION)
    path.write_bytes(path.read_bytes()[:-3000])


GARBAGE = {
    "text": lambda path: path.write_text("once upon a time"),
    "nothing": lambda path: path.write_bytes(b""),
    "one array": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00"),
    "no head": no_head,
    "not a head": not_a_head,
    "pickled": pickled,
    "cut short": cut_short,
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("write", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_checkpoint_is_refused(write, tmp_path):
    path = tmp_path / "fit"
    write(path)
    with pytest.raises(ValueError, match=r"checkpoint='.*fit' is not the checkpoint of a fit \(.*\): remove it"):
        Checkpoint(path, "mark").load({"a": jnp.ones(1000)})
    assert path.exists()


# Never half a file


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", [(os, "replace"), (np, "savez")], ids=lambda pair: pair[1])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(where, error, tmp_path, state, monkeypatch):
    kept = Checkpoint(tmp_path / "fit", "mark")
    kept.save(state, POSITION)

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(*where, fail)
        with pytest.raises(type(error)):
            kept.save(jax.tree.map(jnp.zeros_like, state), POSITION._replace(n_steps=140))
    again, position = kept.load(state)
    assert position == POSITION
    np.testing.assert_array_equal(again.free["Z"], state.free["Z"])
    assert files(tmp_path) == ["fit"]
