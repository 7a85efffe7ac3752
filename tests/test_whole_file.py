"""What is asked for is there whole, or what was there before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from shisha_rt.whole_file import whole_file


@pytest.mark.parametrize("there", [True, False])
def test_half_a_file_is_none(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "p.png"
    if there:
        path.write_text("before")
    with contextlib.suppress(KeyboardInterrupt), whole_file(path) as file:
        file.write_text("half")
        raise KeyboardInterrupt
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"] * there


def test_a_link_stays_and_so_does_the_mode(tmp_path: Path) -> None:
    path, link = tmp_path / "p.png", tmp_path / "latest.png"
    path.write_text("before")
    path.chmod(0o640)
    link.symlink_to("p.png")
    with whole_file(link) as file:
        file.write_text("after")
    assert link.readlink() == Path("p.png")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("after", 0o640)
    assert len([*tmp_path.iterdir()]) == 2


def test_what_is_no_regular_file_is_written_itself(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(path) as file:
            file.write_text("through")
        assert os.read(reading, 100) == b"through"
    finally:
        os.close(reading)


def test_a_descriptor_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w") as out:
        with whole_file(Path(f"/dev/fd/{out.fileno()}")) as file:
            file.write_text("a picture\n")
        out.seek(0, os.SEEK_END)
        out.write("and more")
    assert path.read_text() == "a picture\nand more"


def test_a_full_disk_is_told_of_the_file_that_was_asked_for() -> None:
    with pytest.raises(OSError, match="No space left") as failed, whole_file(Path("/dev/full")) as file:
        file.write_text("lost")
    assert failed.value.filename == "/dev/full"
