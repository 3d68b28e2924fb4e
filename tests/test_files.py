"""Files that are written as a whole or not at all."""

import os
import stat

import pytest

from posteriori.files import replacing


def test_a_new_file_and_one_that_is_replaced(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("one", "two"):
        with replacing(path) as temporary:
            assert temporary != path
            temporary.write_text(text)
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_goes_wrong_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_rights_are_those_of_the_file_or_of_any_new_one(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    path.chmod(0o640)
    other.write_text("")
    for each in (path, tmp_path / "c"):
        with replacing(each) as temporary:
            temporary.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (tmp_path / "c").stat().st_mode == other.stat().st_mode


def test_a_link_keeps_pointing_to_the_file(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(OSError, match="not a regular file"), replacing(tmp_path):
        pass
