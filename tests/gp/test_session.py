"""Sessions of JAX: where compiled programs are kept, that they are found again, and that all settings come back."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jaxlib  # noqa: E402
from jax import monitoring  # noqa: E402
from jax import numpy as jnp  # noqa: E402

import posteriori as po  # noqa: E402
from posteriori.gp import session  # noqa: E402
from posteriori.gp.session import jax_session  # noqa: E402

SETTINGS = ("jax_compilation_cache_dir", *session._KEEPING)
needs_recent = pytest.mark.skipif(
    tuple(map(int, jaxlib.__version__.split(".")[:3])) < session._OLDEST_JAXLIB, reason="this jaxlib keeps no programs"
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Every test sees the folders as a new process would; the settings of JAX are those of a user without wishes."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    session._is_ready.cache_clear()
    kept = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in kept.items():
        jax.config.update(name, value)
    session._forget_folder()
    session._is_ready.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERIORI_JAX_CACHE", str(tmp_path / "programs"))
    return tmp_path / "programs"


@pytest.fixture(scope="module")
def events():
    """Names of what JAX tells of its cache, in the order of events."""
    told = []
    monitoring.register_event_listener(lambda name, **_: told.append(name.rpartition("/")[2]))
    return told


def settings():
    return {name: getattr(jax.config, name) for name in SETTINGS}


def compile_anew(factor):
    """Compile a program of this factor: JAX does not know in memory that it has compiled the same before."""
    return float(jax.jit(lambda x: jnp.cos(factor * x).sum())(jnp.ones(3)))


def programs(folder):
    return sorted(path.name for path in folder.glob("jit_*"))


# What is kept


@needs_recent
def test_a_program_is_found_again(folder, events):
    with jax_session("cpu"):
        first = compile_anew(0.125)
    kept = programs(folder)
    assert any("lambda" in name for name in kept)
    events.clear()
    with jax_session("cpu"):
        assert compile_anew(0.125) == first
    assert events.count("cache_hits") == 1
    assert "cache_misses" not in events
    assert programs(folder) == kept


@needs_recent
def test_what_users_compile_outside_is_not_kept(folder):
    compile_anew(0.25)
    with jax_session("cpu"):
        pass
    compile_anew(0.375)
    assert programs(folder) == []


def test_off_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for off in ("off", "OFF"):
        monkeypatch.setenv("POSTERIORI_JAX_CACHE", off)
        with jax_session("cpu"):
            compile_anew(0.5)
    assert list(tmp_path.iterdir()) == []


def test_an_older_jaxlib_keeps_nothing(folder, monkeypatch):
    monkeypatch.setattr(jaxlib, "__version__", "0.10.1.dev20260101")
    with jax_session("cpu"):
        compile_anew(0.625)
    assert not folder.exists()


@needs_recent
def test_the_folder_of_the_user_is_theirs(folder, tmp_path):
    theirs = tmp_path / "theirs"
    jax.config.update("jax_compilation_cache_dir", str(theirs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    session._forget_folder()
    before = settings()
    with jax_session("cpu"):
        assert settings() == before
        compile_anew(0.75)
    assert settings() == before
    assert programs(theirs)
    assert not folder.exists()


def test_a_user_who_wants_no_cache_gets_none(folder):
    jax.config.update("jax_enable_compilation_cache", False)
    session._forget_folder()
    try:
        with jax_session("cpu"):
            compile_anew(0.875)
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert not folder.exists()


# Settings


@needs_recent
def test_settings_are_ours_inside_and_the_users_afterwards(folder):
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.5)
    before = settings()
    with jax_session("cpu"):
        inside = settings()
        with jax_session(None):
            assert settings() == inside
        assert settings() == inside
    assert inside == {"jax_compilation_cache_dir": str(folder), **session._KEEPING}
    assert settings() == before
    with pytest.raises(ZeroDivisionError), jax_session("cpu"):
        raise ZeroDivisionError
    assert settings() == before


@needs_recent
def test_what_the_user_sets_meanwhile_stays(folder, tmp_path):
    with jax_session("cpu"):
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    assert jax.config.jax_persistent_cache_min_compile_time_secs != 0.0


@needs_recent
def test_the_last_of_many_threads_restores(folder):
    before, inside = settings(), threading.Barrier(8)
    seen = []

    def work(i):
        with jax_session("cpu"):
            inside.wait(60)
            seen.append(jax.config.jax_compilation_cache_dir)
            compile_anew(1.0 + i / 64)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert seen == [str(folder)] * 8
    assert len([name for name in programs(folder) if "lambda" in name]) == 8
    assert settings() == before


def test_a_version_of_jax_without_a_setting(folder, monkeypatch):
    before = settings()
    monkeypatch.setitem(session._KEEPING, "jax_a_setting_that_is_no_more", 1)
    with jax_session("cpu"):
        assert settings() == before
        compile_anew(2.0)
    assert settings() == before


# Folders


def test_where_each_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for system, given, expected in (
        ("linux", {}, tmp_path / ".cache"),
        ("linux", {"XDG_CACHE_HOME": str(tmp_path / "x")}, tmp_path / "x"),
        ("linux", {"XDG_CACHE_HOME": "not/absolute"}, tmp_path / ".cache"),
        ("darwin", {}, tmp_path / "Library" / "Caches"),
        ("win32", {"LOCALAPPDATA": str(tmp_path / "local")}, tmp_path / "local"),
        ("win32", {}, tmp_path / "AppData" / "Local"),
    ):
        with monkeypatch.context() as there:
            there.setattr(sys, "platform", system)
            there.delenv("LOCALAPPDATA", raising=False)
            for name, value in given.items():
                there.setenv(name, value)
            assert session._caches() == expected


@needs_recent
def test_the_usual_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("POSTERIORI_JAX_CACHE", raising=False)
    monkeypatch.setattr(session, "_caches", lambda: tmp_path)
    assert session._folder() == tmp_path / "posteriori" / "jax"
    assert (tmp_path / "posteriori" / "jax").stat().st_mode & 0o077 == 0


def test_without_a_home_nothing_is_kept(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("POSTERIORI_JAX_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert session._folder() is None


@needs_recent
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_programs_of_others_are_not_run(tmp_path, monkeypatch):
    """Unless the user has named their folder."""
    monkeypatch.setattr(session, "_caches", lambda: tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.delenv("POSTERIORI_JAX_CACHE", raising=False)
    assert session._folder() is None
    monkeypatch.setenv("POSTERIORI_JAX_CACHE", str(tmp_path / "named"))
    assert session._folder() == tmp_path / "named"


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    before = settings()
    monkeypatch.setenv("POSTERIORI_JAX_CACHE", str(tmp_path / "file" / "folder"))
    with warnings.catch_warnings(), jax_session("cpu"):
        warnings.simplefilter("error")
        assert settings() == before
        compile_anew(3.0)
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_full_disk_does_no_harm(folder, monkeypatch):
    monkeypatch.setattr(session.shutil, "disk_usage", lambda _: session.shutil._ntuple_diskusage(1, 1, 0))
    assert session._folder() is None


def test_the_oldest_programs_go_and_broken_ones_too(tmp_path, monkeypatch):
    for i, size in enumerate((40, 50, 30, 0, 10)):  # the first was used last
        (tmp_path / str(i)).write_bytes(b"x" * size)
        os.utime(tmp_path / str(i), (1e9 - i, 1e9 - i))
    (tmp_path / "a folder").mkdir()
    monkeypatch.setattr(session, "_MOST_BYTES", 100)
    session._remove_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "a folder"]


# Processes

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
FIT = """
import numpy as np, jax, warnings
from jax import monitoring
import posteriori as po
warnings.simplefilter("error")
told = []
monitoring.register_event_listener(lambda name, **_: told.append(name.rpartition("/")[2]))
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
model = po.GPClassifier(inference="vi", n_inducing=8, max_iter=0).fit(X, X[:, 0] > 0)
P = model.predict_proba(X).tolist()
print(told.count("cache_hits"), told.count("cache_misses"), P)
"""


def fitted(**variables):
    """Hits and misses of a fit in a new process, its probabilities, and what it writes besides."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("POSTERIORI", "JAX", "XDG"))}
    environment |= {"PYTHONPATH": str(Path(po.__file__).parents[1]), "XLA_FLAGS": QUICK, **variables}
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    hits, misses, P = done.stdout.split(maxsplit=2)
    return int(hits), int(misses), P, done.stderr


@needs_recent
@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    where = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    hits, misses, P, said = fitted(**where)
    [folder] = (path.parent for path in tmp_path.rglob("jit_train_row_sites-*"))
    kept = programs(folder)
    assert folder.parts[-2:] == ("posteriori", "jax")
    assert (hits, misses, said) == (0, len(kept), "")
    assert fitted(**where) == (misses, 0, P, "")
    assert programs(folder) == kept


@pytest.mark.slow
def test_a_process_that_can_write_nothing(tmp_path):
    (tmp_path / "caches").write_text("not a folder")
    hits, misses, _, said = fitted(XDG_CACHE_HOME=str(tmp_path / "caches"), HOME=str(tmp_path))
    assert (hits, misses, said) == (0, 0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["caches"]


def test_without_jax_the_error_says_what_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with (
        pytest.raises(ImportError, match=r"jax is missing.*posteriori\[gp\].*default settings.*method slopes"),
        jax_session(None),
    ):
        pass
