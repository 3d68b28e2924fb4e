"""The folder of a server: for this user alone, and gone when its server is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from posteriori.serve.private_folder import PREFIX, private_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_private_and_goes(temporary: Path) -> None:
    with private_folder() as folder:
        assert folder.parent == temporary
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "tables").mkdir()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_server_has_left_is_removed_and_nothing_else(temporary: Path) -> None:
    code = (
        "import os, tempfile; from posteriori.serve.private_folder import private_folder\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "with private_folder() as folder:\n    (folder / 'rows').write_text('1'); os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -9
    (left,) = temporary.iterdir()
    assert (left / "rows").exists()
    with pytest.MonkeyPatch.context() as patch:  # a folder of an application, or of another program
        patch.setattr("os.getuid", lambda: -1)
        with private_folder():
            assert left.exists()
    foreign = temporary / f"{PREFIX}foreign"
    foreign.mkdir()
    link = temporary / f"{PREFIX}link"
    link.symlink_to(left)
    with private_folder() as first, private_folder() as second:
        assert not left.exists()
        assert foreign.exists()
        assert link.is_symlink()
        assert first.exists()
        assert second.exists()
