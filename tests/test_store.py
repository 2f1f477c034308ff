"""The rows of a sweep outlive a kill at any moment, and the file they become is whole, exact and always the same."""

from __future__ import annotations

import csv
import errno
import inspect
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symsim.errors import InputError, sentence
from symsim.grid import outputs as outputs_module
from symsim.grid.rows import Column
from symsim.grid.store import BlockStore, check_output, open_store

COLUMNS = (
    Column("tp", "1", "ranks of tensor parallelism", "integer"),
    Column("t_step", "s", "time of a step, with its bubble", "number"),
    Column("fits", "1", "whether the peak fits", "boolean"),
    Column("schedule", "", "pipeline schedule", "text"),
)
SUFFIXES = (".parquet", ".csv")


def rows_of(block: int, rows: int = 40) -> dict[str, np.ndarray]:
    """Rows that differ between blocks, with texts that other blocks do not have."""
    draw = np.random.default_rng(block)
    words = np.array(["1f1b", "zero bubble, v", f'only "{block}"', "größer"], dtype=object)
    return {
        "tp": draw.integers(-(2 ** (block % 63)), 2 ** (block % 63), rows),
        "t_step": draw.choice(draw.random(rows // 2 + 1), rows),
        "fits": draw.random(rows) < 0.5,
        "schedule": draw.choice(words, rows),
    }


def begin(output: Path, blocks: int = 3, key: str = "key", resume: bool = False, columns: tuple[Column, ...] = COLUMNS) -> BlockStore:
    return open_store(output, key, columns, blocks, resume)


def completed(output: Path, blocks: int = 3, resume: bool = False) -> bytes:
    """The bytes of the output after the missing blocks were written and the sweep finished."""
    store = begin(output, blocks, resume=resume)
    for block in set(range(blocks)) - store.finished():
        store.write(block, rows_of(block))
    store.finish(metadata={"version": "1"})
    return output.read_bytes()


def refusal(call, *arguments, **named) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert list(left) == list(right)
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], strict=True)


# Parts


def test_parts_come_back_in_the_order_of_the_blocks(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 12)
    for block in (11, 2, 7):
        store.write(block, rows_of(block, rows=block))
    assert store.finished() == {2, 7, 11}
    for block, rows in zip((2, 7, 11), store.parts(), strict=True):
        same(rows, rows_of(block, rows=block))


@pytest.mark.parametrize("bits", [7, 8, 15, 16, 31, 32, 63])
def test_whole_numbers_of_any_size_come_back(tmp_path: Path, bits: int):
    store = begin(tmp_path / "s.csv", 1, columns=COLUMNS[:1])
    values = np.array([-(2**bits), 0, 2**bits - 1])
    store.write(0, {"tp": values})
    same(next(store.parts()), {"tp": values})


def test_rows_of_other_types_that_lose_nothing_are_taken(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 1)
    store.write(
        0, {"schedule": np.array(["a", "ü"]), "tp": np.array([1, 2], np.uint8), "t_step": np.float32([1, 2]), "fits": np.array([True, False])}
    )
    expected = {"tp": np.array([1, 2]), "t_step": np.array([1.0, 2.0]), "fits": np.array([True, False]), "schedule": np.array(["a", "ü"], object)}
    same(next(store.parts()), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"tp": np.array([0.5] * 40)},
        {"tp": np.zeros(40, np.uint64)},
        {"tp": np.zeros(39, np.int64)},
        {"tp": np.zeros((40, 1), np.int64)},
        {"schedule": np.zeros(40)},
        {"fits": np.zeros(40, np.int64)},
        {"more": np.zeros(40)},
    ],
)
def test_rows_that_are_not_the_columns_are_a_mistake_of_the_caller(tmp_path: Path, change: dict[str, np.ndarray]):
    store = begin(tmp_path / "s.csv", 1)
    with pytest.raises(ValueError):
        store.write(0, rows_of(0) | change)
    assert store.finished() == set()


def test_half_a_character_is_refused(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 1)
    assert "column schedule holds text with half a Unicode character" in refusal(store.write, 0, rows_of(0, 1) | {"schedule": np.array(["\ud800"])})


def test_unfinished_blocks_cannot_be_finished(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 2)
    store.write(0, rows_of(0))
    with pytest.raises(ValueError):
        store.finish()
    with pytest.raises(ValueError):
        store.write(2, rows_of(2))


def test_workers_write_through_a_pickled_store(tmp_path: Path):
    store = begin(tmp_path / "s.csv")
    pickle.loads(pickle.dumps(store)).write(1, rows_of(1))
    assert store.finished() == {1}


# Going on, or not


def test_a_sweep_goes_on_where_it_was_left(tmp_path: Path):
    whole = completed(tmp_path / "whole.csv")
    with begin(tmp_path / "s.csv", resume=True) as store:
        store.write(1, rows_of(1))
    with begin(tmp_path / "s.csv", resume=True) as store:
        assert store.finished() == {1}
    assert completed(tmp_path / "s.csv", resume=True) == whole
    assert sorted(os.listdir(tmp_path)) == ["s.csv", "whole.csv"]
    # nothing is left to go on with, so the next sweep is a new one
    assert completed(tmp_path / "s.csv", resume=True) == whole


def test_an_unfinished_sweep_is_not_overwritten(tmp_path: Path):
    output, parts = tmp_path / "s.csv", tmp_path / "s.csv.parts"
    with begin(output) as store:
        store.write(1, rows_of(1))
    assert refusal(begin, output) == f"{parts}: holds this sweep, unfinished (1 of 3 blocks): give --resume to go on, or remove it to begin again"
    other = f"{parts}: holds an unfinished sweep with other options, or of another version of symsim: "
    assert refusal(begin, output, key="other") == other + "remove it, or name another output file"
    assert refusal(begin, output, key="other", resume=True).startswith(other + "--resume goes on only with the options it was begun with")
    assert "of another version of symsim" in refusal(begin, output, blocks=4, resume=True)
    assert "of another version of symsim" in refusal(begin, output, columns=COLUMNS[:2], resume=True)
    (parts / "sweep.json").write_text("{")
    assert "its sweep.json does not read" in refusal(begin, output, resume=True)
    assert sorted(os.listdir(parts)) == ["1.part", "lock", "sweep.json"]


def test_discard_leaves_nothing_but_what_others_put_there(tmp_path: Path):
    output = tmp_path / "s.csv"
    output.write_text("old")
    store = begin(output)
    store.write(0, rows_of(0))
    store.discard()
    assert os.listdir(tmp_path) == ["s.csv"] and output.read_text() == "old"
    store = begin(output)
    (tmp_path / "s.csv.parts" / "notes").touch()
    store.discard()
    assert os.listdir(tmp_path / "s.csv.parts") == ["notes"]
    assert "is in the way of the parts" in refusal(begin, output)


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "other block", "other sweep"])
def test_a_damaged_part_is_computed_again(tmp_path: Path, damage: str):
    output = tmp_path / "s.csv"
    whole = completed(tmp_path / "whole.csv")
    with begin(output) as store:
        for block in range(3):
            store.write(block, rows_of(block))
    part = tmp_path / "s.csv.parts" / "1.part"
    content = part.read_bytes()
    if damage == "other sweep":
        with begin(tmp_path / "other.csv", key="other") as other:
            other.write(1, rows_of(1))
        (tmp_path / "other.csv.parts" / "1.part").replace(part)
    elif damage == "other block":
        part.write_bytes(part.with_name("2.part").read_bytes())
    elif damage == "bit":
        part.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    else:
        part.write_bytes(content[:-50] if damage == "cut" else b"")
    with begin(output, resume=True) as store:
        assert store.finished() == {0, 2}
    assert completed(output, resume=True) == whole


def test_a_part_damaged_while_the_sweep_runs_leaves_the_old_output(tmp_path: Path):
    output = tmp_path / "s.csv"
    output.write_text("old")
    with begin(output) as store:
        for block in range(3):
            store.write(block, rows_of(block))
        os.truncate(tmp_path / "s.csv.parts" / "1.part", 90)
        assert "block 1 was damaged after it was written; --resume computes it again" in refusal(store.finish)
        assert store.finished() == {0, 2}
    assert output.read_text() == "old"
    assert completed(output, resume=True) == completed(tmp_path / "whole.csv")


# Killed

# Without this file's own imports, which take longer than the sweep.
WORKER = f"""from __future__ import annotations
import sys, time
from pathlib import Path
import numpy as np
from symsim.errors import InputError
from symsim.grid.rows import Column
from symsim.grid.store import BlockStore, open_store
COLUMNS = {COLUMNS!r}
{inspect.getsource(rows_of)}
{inspect.getsource(begin)}
"""
SWEEP = f"""{WORKER}
store = begin(Path(sys.argv[1]), int(sys.argv[2]), resume=True)
print("ready", flush=True)
for block in sorted(set(range(int(sys.argv[2]))) - store.finished()):
    store.write(block, rows_of(block))
    print(block, flush=True)
store.finish(metadata={{"version": "1"}})
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ten_kills_lose_no_block_and_change_no_byte(tmp_path: Path, suffix: str):
    blocks, output, draw = 200, tmp_path / f"s{suffix}", random.Random(7)
    began = time.monotonic()
    whole = completed(tmp_path / f"whole{suffix}", blocks)
    length = time.monotonic() - began
    kills = 0
    while kills < 10:
        process = subprocess.Popen([sys.executable, "-c", SWEEP, str(output), str(blocks)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0, length / 5))
        process.kill()
        written = {int(line) for line in process.stdout if line.endswith("\n")}
        if process.wait() == 0:
            assert output.read_bytes() == whole
            output.unlink()
            continue
        kills += 1
        assert not output.exists() or output.read_bytes() == whole
        assert set(os.listdir(tmp_path)) <= {f"whole{suffix}", f"s{suffix}", f"s{suffix}.parts"}
        if output.exists():
            continue
        with begin(output, blocks, resume=True) as store:
            assert written <= store.finished()
    assert completed(output, blocks, resume=True) == whole
    assert sorted(os.listdir(tmp_path)) == [f"s{suffix}", f"whole{suffix}"]


def killed_at(step: int, after: bool, output: Path) -> bool:
    """Whether the sweep was killed: before or after its call number `step` that changes the disk."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    calls = 0

    def counted(call):
        def counting(*arguments, **named):
            nonlocal calls
            calls += 1
            if calls == step and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **named)
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counting

    try:
        for name in ("mkdir", "fsync", "replace", "unlink", "rmdir", "open"):
            setattr(os, name, counted(getattr(os, name)))
        completed(output)
    finally:
        os._exit(0)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_every_step_can_be_resumed(tmp_path: Path, after: bool):
    whole = completed(tmp_path / "whole.csv")
    for step in range(1, 100):
        output = tmp_path / str(step) / "s.csv"
        output.parent.mkdir()
        output.write_text("old")
        killed = killed_at(step, after, output)
        assert output.read_bytes() in ((b"old", whole) if killed else (whole,))
        assert completed(output, resume=True) == whole
        assert os.listdir(output.parent) == ["s.csv"]
        if not killed:
            break
    assert 25 < step < 99


def test_only_one_process_writes(tmp_path: Path):
    output = tmp_path / "s.csv"
    waiting = SWEEP.replace("for block", "time.sleep(60)\nfor block")
    process = subprocess.Popen([sys.executable, "-c", waiting, str(output), "3"], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for resume in (False, True):
        assert "another process is writing this sweep" in refusal(begin, output, resume=resume)
    process.kill()
    process.wait()
    process.stdout.close()
    begin(output, resume=True).close()


def test_a_worker_that_outlives_its_sweep_does_not_hold_the_lock(tmp_path: Path):
    reads, writes = os.pipe()
    parent = os.fork()
    if parent == 0:
        held = begin(tmp_path / "s.csv")  # noqa: F841
        if worker := os.fork():
            os.write(writes, f"{worker}\n".encode())
        time.sleep(60)
        os._exit(0)
    worker = int(os.read(reads, 20))
    try:
        assert "another process" in refusal(begin, tmp_path / "s.csv", resume=True)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        begin(tmp_path / "s.csv", resume=True).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(reads)
        os.close(writes)


# What the system refuses

LIMITED = f"""{WORKER}
import resource
store = begin(Path(sys.argv[1]))
for block in range(3):
    if sys.argv[2] == str(block):
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, -1))
    try:
        store.write(block, rows_of(block))
    except InputError as error:
        sys.exit(str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (2500, -1))
try:
    store.finish(metadata={{"version": "1"}})
except InputError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("block", [1, None])
def test_files_that_may_not_grow(tmp_path: Path, suffix: str, block: int | None):
    output, parts = tmp_path / f"s{suffix}", tmp_path / f"s{suffix}.parts"
    output.write_text("old")
    process = subprocess.run([sys.executable, "-c", LIMITED, str(output), str(block)], capture_output=True, text=True)
    place = output if block is None else parts
    kept = f"; the blocks finished before are kept in {parts}, and --resume goes on from them"
    assert process.stderr == sentence(f"{place}: cannot be written: File too large{kept}") + "\n"
    assert output.read_text() == "old"
    assert sorted(os.listdir(parts)) == [f"{done}.part" for done in range(3 if block is None else block)] + ["lock", "sweep.json"]
    assert completed(output, resume=True) == completed(tmp_path / f"whole{suffix}")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch):
    output, parts = tmp_path / f"s{suffix}", tmp_path / f"s{suffix}.parts"
    output.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert refusal(begin, output) == f"{parts}: cannot be written: No space left on device"
        assert os.listdir(tmp_path) == [output.name]
    store = begin(output)
    store.write(0, rows_of(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert refusal(store.write, 1, rows_of(1)).startswith(f"{parts}: cannot be written: No space left on device; the blocks finished before are")
        assert store.finished() == {0}
    for block in (1, 2):
        store.write(block, rows_of(block))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert refusal(store.finish).startswith(f"{output}: cannot be written: No space left on device; the blocks finished before are")
        assert output.read_text() == "old"
    store.finish(metadata={"version": "1"})
    assert output.read_bytes() == completed(tmp_path / f"whole{suffix}")


def test_outputs_that_cannot_be(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "dir.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "taken.csv.parts").touch()
    (tmp_path / "linked.csv.parts").symlink_to(tmp_path)
    (tmp_path / "foreign.csv.parts").mkdir()
    (tmp_path / "foreign.csv.parts" / "1.txt").touch()
    before = sorted(os.walk(tmp_path))
    for name, expected in {
        "s.json": "the rows of a sweep are written as .parquet or .csv",
        "s": "the rows of a sweep are written as .parquet or .csv",
        "absent/s.csv": f"there is no directory {tmp_path}/absent",
        "file/s.csv": f"there is no directory {tmp_path}/file",
        "dir.csv": "is a directory",
        "pipe.csv": "is not a regular file",
        "taken.csv": "is in the way of the parts",
        "linked.csv": "is in the way of the parts",
        "foreign.csv": "is in the way of the parts",
        "n" * 250 + ".csv": "cannot be written: File name too long",
        "nul\0.csv": "embedded null",
    }.items():
        for call in (check_output, begin):
            assert expected in refusal(call, tmp_path / name)
    check_output(tmp_path / "s.PARQUET")
    assert sorted(os.walk(tmp_path)) == before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc")
def test_a_directory_that_may_not_be_written():
    # root may write anywhere but where the kernel itself says no
    assert "cannot be written" in refusal(check_output, Path("/proc/s.csv"))


def test_an_output_that_becomes_a_directory_while_the_sweep_runs(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 1)
    store.write(0, rows_of(0))
    (tmp_path / "s.csv").mkdir()
    assert "cannot be written: Is a directory; the blocks finished before are kept" in refusal(store.finish)
    assert store.finished() == {0}


def test_parts_removed_while_the_sweep_runs(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 1)
    (tmp_path / "s.csv.parts").rename(tmp_path / "elsewhere")
    for call in (store.finished, lambda: store.write(0, rows_of(0))):
        assert "cannot be written: No such file or directory" in refusal(call)
    store.discard()


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = begin(tmp_path / "s.parquet", 1)
    store.write(0, rows_of(0))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    expected = f"writing Parquet needs pyarrow (pip install pyarrow); or give {tmp_path}/s.csv"
    assert expected in refusal(check_output, tmp_path / "s.parquet")
    assert expected in refusal(store.finish)
    assert store.finished() == {0} and not (tmp_path / "s.parquet").exists()
    completed(tmp_path / "s.csv")


def test_importing_the_store_is_instant():
    code = "import sys, symsim.grid.store; print(sorted({'numpy', 'pyarrow', 'pandas'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


# The output


def test_parquet_holds_units_meanings_and_metadata(tmp_path: Path):
    completed(tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet")
    assert table.schema.metadata == {b"symsim.version": b"1"}
    assert [(field.name, str(field.type), field.nullable) for field in table.schema] == [
        ("tp", "int64", False),
        ("t_step", "double", False),
        ("fits", "bool", False),
        ("schedule", "dictionary<values=string, indices=int32, ordered=0>", False),
    ]
    for column, field in zip(COLUMNS, table.schema, strict=True):
        assert field.metadata == {b"unit": column.unit.encode(), b"meaning": column.meaning.encode()}
    for name in table.column_names:
        assert table[name].to_pylist() == [value for block in range(3) for value in rows_of(block)[name].tolist()]
    chunk = pq.read_metadata(tmp_path / "s.parquet").row_group(0).column(3)
    assert chunk.compression == "ZSTD" and "RLE_DICTIONARY" in chunk.encodings


def test_row_groups_do_not_follow_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs_module, "_ROW_GROUP", 64)
    store = begin(tmp_path / "s.parquet", 7)
    sizes = (0, 10, 60, 200, 0, 5, 40)
    for block, rows in enumerate(sizes):
        store.write(block, rows_of(block, rows))
    store.finish()
    metadata = pq.read_metadata(tmp_path / "s.parquet")
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [64] * 4 + [59]
    table = pq.read_table(tmp_path / "s.parquet")
    for name in table.column_names:
        assert table[name].to_pylist() == [value for block, rows in enumerate(sizes) for value in rows_of(block, rows)[name].tolist()]
    last = pq.ParquetFile(tmp_path / "s.parquet").read_row_group(4)["schedule"].chunk(0).dictionary.to_pylist()
    assert len(set(last)) == len(last) and 'only "3"' in last and 'only "1"' not in last


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("blocks", [0, 2])
def test_no_rows(tmp_path: Path, suffix: str, blocks: int):
    store = begin(tmp_path / f"s{suffix}", blocks)
    for block in range(blocks):
        store.write(block, rows_of(block, 0))
    store.finish()
    if suffix == ".csv":
        assert (tmp_path / "s.csv").read_text() == "tp,t_step,fits,schedule\n"
    else:
        assert pq.read_table(tmp_path / "s.parquet").num_rows == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_that_the_caller_merged(tmp_path: Path, suffix: str):
    store = begin(tmp_path / f"s{suffix}", 5)
    store.write(4, rows_of(4))
    store.finish(({name: values[:3] for name, values in rows.items()} for rows in store.parts()), metadata={"version": "1"})
    alone = begin(tmp_path / f"alone{suffix}", 1)
    alone.write(0, {name: values[:3] for name, values in rows_of(4).items()})
    alone.finish(metadata={"version": "1"})
    assert (tmp_path / f"s{suffix}").read_bytes() == (tmp_path / f"alone{suffix}").read_bytes()
    assert len(os.listdir(tmp_path)) == 2


def test_the_output_follows_the_umask(tmp_path: Path):
    before = os.umask(0o027)
    try:
        completed(tmp_path / "s.csv")
    finally:
        os.umask(before)
    assert (tmp_path / "s.csv").stat().st_mode & 0o777 == 0o640


def test_csv_as_printed(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 1)
    numbers = np.array([0.1 + 0.2, 1e22, -0.0, 0.0, np.nan, np.inf])
    texts = np.array(["plain", "a,b", 'say "so"', "two\nlines", "", " ü "], dtype=object)
    store.write(0, {"tp": np.array([1, -2, 2**62, 0, 5, 6]), "t_step": numbers, "fits": np.arange(6) % 2 == 0, "schedule": texts})
    store.finish()
    assert (tmp_path / "s.csv").read_bytes().decode() == (
        "tp,t_step,fits,schedule\n"
        "1,0.30000000000000004,true,plain\n"
        '-2,1e+22,false,"a,b"\n'
        '4611686018427387904,-0.0,true,"say ""so"""\n'
        '0,0.0,false,"two\nlines"\n'
        '5,nan,true,""\n'
        "6,inf,false, ü \n"
    )


ROW = st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))


@settings(max_examples=40)
@given(st.lists(ROW, max_size=20))
def test_csv_reads_back_exactly(rows: list[tuple[int, float, bool, str]]):
    tp, t_step, fits, schedule = zip(*rows, strict=True) if rows else ((), (), (), ())
    with tempfile.TemporaryDirectory() as directory:
        store = begin(Path(directory) / "s.csv", 1)
        block = {
            "tp": np.array(tp, np.int64),
            "t_step": np.array(t_step, float),
            "fits": np.array(fits, bool),
            "schedule": np.array(schedule, object),
        }
        store.write(0, block)
        store.finish()
        with open(Path(directory) / "s.csv", newline="", encoding="utf-8") as file:
            read = list(csv.reader(file))[1:]
    assert len(read) == len(rows)
    for row, (whole, number, flag, text) in zip(read, rows, strict=True):
        assert int(row[0]) == whole and row[2] == str(flag).lower() and row[3] == text
        assert float(row[1]) == number or (math.isnan(number) and math.isnan(float(row[1])))
        assert math.copysign(1, float(row[1])) == math.copysign(1, number) or math.isnan(number)


def test_an_empty_text_in_a_table_of_one_column_is_a_row(tmp_path: Path):
    store = begin(tmp_path / "s.csv", 1, columns=COLUMNS[3:])
    store.write(0, {"schedule": np.array(["", "a"], dtype=object)})
    store.finish()
    with open(tmp_path / "s.csv", newline="") as file:
        assert list(csv.reader(file)) == [["schedule"], [""], ["a"]]
