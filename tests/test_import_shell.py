"""Scripts are read as a shell would read them, and nothing of them is run."""

import random
import subprocess
from pathlib import Path

import pytest

from symsim.errors import InputError
from symsim.importers.shell.calls import called
from symsim.importers.shell.command import which
from symsim.importers.shell.options import options
from symsim.importers.shell.reader import Command, commands, scripts
from symsim.importers.shell.slurm import scheduled

SCRIPT = """#!/bin/bash
#SBATCH --nodes=4
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1   # one
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"4"}
WORLD_SIZE=$(($GPUS_PER_NODE * NNODES))
DATA=$1
TP=${TP:-2}
if [ "$TP" -gt 1 ]; then
    SP="--sequence-parallel"
else
    SP=""
fi
case $TP in
    1) HIDDEN=1024 ;;
    2 | 4) HIDDEN=2048 ;;
    *) echo "unknown" >&2; exit 1 ;;
esac
[ -z "$LAYERS" ] && LAYERS=24
MODEL_ARGS=(
    --num-layers $LAYERS          # comment
    --hidden-size "$HIDDEN"
    # --swiglu
    "--fp8-format hybrid"
)
MODEL_ARGS+=(--num-attention-heads 16)
for name in overlap-grad-reduce overlap-param-gather; do MODEL_ARGS+=(--$name); done
TRAIN_ARGS="
    --micro-batch-size 1
    --global-batch-size $WORLD_SIZE \\
    --data-path ${DATA} --split 969,30,1
"
if [ ! -f pretrain_gpt.py ]; then
    echo missing; exit 1
fi
cat <<EOF2 > notes.txt
torchrun this is no command
EOF2
mkdir -p "$(dirname "$DATA")" && cd /tmp || exit 1
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes=$NNODES pretrain_gpt.py \\
    ${MODEL_ARGS[@]} \\
    $TRAIN_ARGS $SP '--comment' "it's $TP" 2>&1 | tee log.txt
"""


def launch(text: str, **variables: str) -> Command:
    found = [one for one in commands(text, "train.sh", variables) if one.words[0].text == "torchrun"]
    assert len(found) == 1
    return found[0]


def test_a_script_gives_the_words_that_the_shell_would() -> None:
    command = launch(SCRIPT)
    texts = [word.text for word in command.words]
    assert " ".join(texts[:5]) == "torchrun --nproc_per_node 8 --nnodes=4 pretrain_gpt.py"
    assert "--num-layers 24 --hidden-size 2048 --fp8-format hybrid --num-attention-heads 16" in " ".join(texts)
    assert "--overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 --global-batch-size 32 --data-path $1" in " ".join(texts)
    assert texts[-3:] == ["--sequence-parallel", "--comment", "it's 2"]
    assert "--swiglu" not in texts and "tee" not in texts
    assert command.environment["CUDA_DEVICE_MAX_CONNECTIONS"].text == "1"
    unknown = [word for word in command.words if word.why is not None]
    assert [(word.text, word.why) for word in unknown] == [
        ("$1", "train.sh:8: $1 (DATA) has no value; --var 1=VALUE gives it, or the script's arguments behind it: DATA")
    ]
    lines = {word.text: word.where for word in command.words}
    assert lines["--hidden-size"] == "train.sh:23" and lines["--micro-batch-size"] == "train.sh:30" and lines["--comment"] == "train.sh:43"


def test_given_variables_stand_above_the_scripts_own() -> None:
    texts = [word.text for word in launch(SCRIPT, TP="1", GPUS_PER_NODE="4", LAYERS="3", **{"1": "/data"}).words]
    assert "--hidden-size 1024" in " ".join(texts) and "--nproc_per_node 4" in " ".join(texts) and "--num-layers 3" in " ".join(texts)
    assert "--global-batch-size 16 --data-path /data" in " ".join(texts) and "--sequence-parallel" not in texts
    assert not any(word.text == "torchrun" for one in commands(SCRIPT, "train.sh", {"TP": "3"}) for word in one.words)


def test_the_words_are_those_of_bash(tmp_path: Path) -> None:
    script = (
        SCRIPT.replace("if [ ! -f pretrain_gpt.py ]", "if false")
        .replace("torchrun --nproc", "printf '%s\\n' torchrun --nproc")
        .replace(" 2>&1 | tee log.txt", "")
    )
    script = script.replace("set -euo pipefail", "").replace("cat <<EOF2 > notes.txt", "cat <<EOF2 > /dev/null").replace("mkdir -p", "true")
    try:
        run = subprocess.run(["bash", "-c", script, "train.sh", "/data/set"], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("no bash here")
    assert run.stdout.splitlines() == [word.text for word in launch(SCRIPT, **{"1": "/data/set"}).words], run.stderr


# what commands that only write their words, loops that count and changed values come to
WRITTEN = [
    ('A=/a/b.c.sh; x $(basename $A .sh) $(dirname "$A") ${A%.*} ${A%%.*} ${A##*/} ${A#*/}', "x b.c /a /a/b.c /a/b b.c.sh a/b.c.sh".split()),
    ("A=aba; x ${A//a/q} ${A/a/} ${A^^} ${A%c}", ["x", "qbq", "ba", "ABA", "aba"]),
    ("A=(1 2); IFS=', '; B=\"${A[*]}\"; unset IFS; x $B", ["x", "1,2"]),
    ('A=(1 2); x [$(IFS=+; echo "${A[*]}")] $(echo a  b)', ["x", "[1+2]", "a", "b"]),
    ('A=(); for ((i=0; i<4; i++)); do if (( i < 2 )); then A+=(0); else A+=(1); fi; done; x "${A[*]}"', ["x", "0 0 1 1"]),
    ("A=(0 1); printf -v F '[%s]' \"$(IFS=', '; echo \"${A[*]}\")\"; x $F", ["x", "[0,1]"]),
    ("i=3; ((i++)); ((i+=2)); ((--i)); x $i $(printf '%02d-%s' 3 a) $(printf '%s,' 1 2)", ["x", "5", "03-a", "1,2,"]),
    ("A=; for ((i=8; i>1; i/=2)); do A=$A$i; done; x $A", ["x", "842"]),
]


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_what_is_written_is_what_bash_writes(text: str, expected: list[str]) -> None:
    try:
        run = subprocess.run(["bash", "-c", "x() { printf '%s\\n' x \"$@\"; }; " + text], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("no bash here")
    assert run.stdout.splitlines() == expected, run.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1; B=${A}2; x $B", ["x", "12"]),
        ('if [ -z "$HOME_OF" ]; then exit 1; fi; x 1', ["x", "1"]),
        ('A=${A:-}; if [[ -z "${A}" ]]; then echo; exit 1; fi; x 1', ["x", "1"]),
        ("x 1 ${NONE[@]}", ["x", "1"]),
        ("A='1 2'; x $A \"$A\"", ["x", "1", "2", "1 2"]),
        ("A=(1 '2 3'); A+=(4); x \"${A[@]}\" ${#A[@]} ${A[1]}", ["x", "1", "2 3", "4", "3", "2", "3"]),
        ('x ${A:-a b} ${A:-"a b"} ${B:=7} $B ${B:+set} ${A:+set}', ["x", "a", "b", "a b", "7", "7", "set"]),
        ('A=(); x "${A[@]}" "" $@', ["x", ""]),
        ("x $((2 * (3 + 4) % 5)) $((7/2)) $((2**5)) $((-7 / 2))", ["x", "4", "3", "32", "-3"]),
        ("CMD=\"x --a '1 2'\"; eval $CMD", ["x", "--a", "1 2"]),
        ("A=3; x $(( ($A > 1) ? 7 : 0 )) $((A > 5 ? 1 : A < 4 && 1)) $((!A || 0))", ["x", "7", "1", "0"]),
        ("srun bash -c 'A=3; x $A'", ["x", "3"]),
        ('f() { local A=$1; x $A "$@"; }; f 1 2', ["x", "1", "1", "2"]),
        ("function f { x $#; }\nf 1 2", ["x", "2"]),
        ("[[ $A == b* && -n $A ]] || x 1", ["x", "1"]),
        ("A=bc; if [[ $A == b* && ! -z $A ]]; then x 1; else y 2; fi", ["x", "1"]),
        ("A=3; if (( A > 2 )); then x 1; elif true; then y; fi", ["x", "1"]),
        ("A=1; if [ $A = 2 ]; then B=--b; fi; x $B $A", ["x", "1"]),
        ("case 3 in 1) B=--b;; 2) C=--c;; esac; x $B $C 1", ["x", "1"]),
        ("while [ $# -gt 0 ]; do A=$1; shift; done; A=${A:-4}; x $A", ["x", "4"]),
        ("x a\\\n  b \\\n c", ["x", "a", "b", "c"]),
        ("x <(sort y) a > out 2>&1 < in", ["x", "$(sort y)", "a"]),
        ("x a\r\ny\r\n", ["x", "a"]),
        *WRITTEN,
    ],
)
def test_expansions(text: str, expected: list[str]) -> None:
    first = next(one for one in commands(text, "s") if one.words[0].text == "x")
    assert [word.text for word in first.words][: len(expected)] == expected


# what a script makes of its arguments 7B, 4, --tp and 2
ARGUMENTS = [
    ('x $1 ${2:-8} ${9:-8} $# "$@"', "x 7B 4 8 4 7B 4 --tp 2".split()),
    ('x ${@:3} ${@:2:1} ${@: -1} ${!#} "${*:3}"', ["x", "--tp", "2", "4", "2", "2", "--tp 2"]),
    ("A=$1; shift 2; B=$2; shift; x $A $B $# $1", "x 7B 2 1 2".split()),
    ("shift 2; while [ $# -gt 0 ]; do case $1 in --tp) TP=$2; shift 2;; *) exit 1;; esac; done; x ${TP}", ["x", "2"]),
    ('shift 2; while [[ "$1" != "" ]]; do case $1 in --tp ) shift; TP=$1;; esac; shift; done; x $TP $#', ["x", "2", "0"]),
    ("until [ $# = 1 ]; do shift; done; x $1", ["x", "2"]),
    ('B=; for A in "$@"; do [ $A = --tp ] && break; B=$B$A; done; x $B', ["x", "7B4"]),
    ("B=; for A; do if [ $A = 4 ]; then continue; fi; B=$B$A; done; x $B", ["x", "7B--tp2"]),
    ("for A do C=$A; done; x $C", ["x", "2"]),
    ("set -- a b; x $2 $#; set -e", ["x", "b", "2"]),
    ("if [ $# -ne 4 ]; then exit 1; fi; x 1", ["x", "1"]),
    ("f() { shift; x $1 $#; }; f $1 q r", ["x", "q", "2"]),
    ("N=A; A=5; B=abcdef; x ${!N} ${B:2} ${B:1:2} ${B: -1:1}", ["x", "5", "cdef", "bc", "f"]),
    ("A=(1 2 3 4); x ${A[@]:1:2} ${A[@]:2}", ["x", "2", "3", "3", "4"]),
    ('f() { x $1 "$2" $3; }; f "--tp $2 \\\n  --pp 1" "" ""', ["x", "--tp", "4", "--pp", "1", ""]),
    ('set -- "a  b" "" c; x $@ "$@"', ["x", "a", "b", "c", "a  b", "", "c"]),
    ('A=("" b "c d"); x ${A[@]} "${A[@]}"', ["x", "b", "c", "d", "", "b", "c d"]),
]
GIVEN = ["7B", "4", "--tp", "2"]


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS)
def test_arguments_of_a_script(text: str, expected: list[str]) -> None:
    _, variables = called(["bash", "s.sh", *GIVEN], {})
    first = next(one for one in commands(text, "s", variables) if one.words[0].text == "x")
    assert [word.text for word in first.words] == expected


@pytest.mark.parametrize(("text", "expected"), ARGUMENTS)
def test_arguments_are_what_bash_makes_of_them(text: str, expected: list[str]) -> None:
    try:
        run = subprocess.run(["bash", "-c", "x() { printf '%s\\n' x \"$@\"; }; " + text, "s", *GIVEN], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("no bash here")
    assert run.stdout.splitlines() == expected, run.stderr


def test_words_behind_a_script_are_its_arguments(tmp_path: Path) -> None:
    asks, silent, beside = tmp_path / "asks.sh", tmp_path / "silent.sh", tmp_path / "beside.sh"
    asks.write_text("SIZE=$1\n")
    silent.write_text("SIZE=7B\n")
    beside.write_text("A=1\n")
    numbered = {"1": "7B", "2": "0.5", "#": "2"}
    assert called([str(asks), "7B", "0.5", "--seq-length", "8"], {}) == ([str(asks), "--seq-length", "8"], numbered)
    assert called(["A=1", "bash", str(asks), "7B", "--tp"], {"B": "2"}) == ([str(asks)], {"A": "1", "B": "2", "1": "7B", "2": "--tp", "#": "2"})
    assert called([str(beside), str(asks), "7B"], {})[0] == [str(beside), str(asks)]
    for files in ([str(beside), str(asks)], [str(asks), "ds.json"], [str(asks), "a.b=1"], ["swift", "sft", "--model", "q"], ["conf.yaml", "x"]):
        assert called(files, {"1": "q"}) == (files, {"1": "q"})
    for inputs, variables, sentence in (
        ([str(silent), "7B"], {}, f"{silent}: the script asks for no arguments, and no file is called '7B'"),
        ([str(asks), "7B"], {"1": "8B"}, "--var 1 and the words behind the script both give its arguments; give one of them"),
        (["bash", "--norc"], {}, "behind bash should follow a script"),
    ):
        with pytest.raises(InputError) as error:
            called(inputs, variables)
        assert str(error.value) == sentence


def test_an_argument_that_is_not_given_names_its_place_and_its_use() -> None:
    text = "SIZE=$1; TP=${2}\nshift; x $TP $SIZE ${2}\n"
    words = commands(text, "s")[0].words
    usage = "or the script's arguments behind it: SIZE TP"
    assert [word.why for word in words[1:]] == [
        f"s:1: $2 (TP) has no value; --var 2=VALUE gives it, {usage}",
        f"s:1: $1 (SIZE) has no value; --var 1=VALUE gives it, {usage}",
        f"s:2: $2 (argument 3) has no value; --var 3=VALUE gives it, {usage}",
    ]
    given = commands(text, "s", {"1": "7B", "#": "1"})[0].words
    assert given[2].text == "7B" and given[1].why == "s:1: $2 has no value: 1 arguments are given"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x $(nproc)", "s:1: the output of 'nproc' is not known, since nothing is run"),
        ("A=$(nproc)\nx $A", "s:1: the output of 'nproc' is not known, since nothing is run; --var A=VALUE gives it"),
        ("A=${A:-`hostname -i`}\nx $A", "s:1: the output of 'hostname -i' is not known, since nothing is run; --var A=VALUE gives it"),
        ("\nx ${A%.*}", "s:2: ${A%.*} has no value; --var A=VALUE gives it"),
        ("A=b; x ${A/[b]/c}", "s:1: ${A/[b]/c} is an expansion that is not followed here; write its value out"),
        ("x $(echo 1 | tr 1 2)", "s:1: the output of 'echo 1 | tr 1 2' is not known, since nothing is run"),
        ("x $(basename $A)", "s:1: $A has no value; --var A=VALUE gives it"),
        ("x $(ls $A)", "s:1: the output of 'ls $A' is not known, since nothing is run"),
        ("x $TP", "s:1: $TP has no value; --var TP=VALUE gives it"),
        ("if [ -f y ]; then A=1; else A=2; fi\nx $A", "s:1: $A: it depends on the condition, which only a run could tell; --var A=VALUE gives it"),
        ('if [ "$M" = 7b ]; then A=1; else A=2; fi\nx $A', "s:1: $M has no value; --var M=VALUE gives it"),
        ("case $M in 7b) A=1;; *) A=2;; esac\nx $A", "s:1: $M has no value; --var M=VALUE gives it"),
        ("x $((1 / 0))", "s:1: a division by 0"),
        ("x $((B + 1))", "s:1: $B has no value; --var B=VALUE gives it"),
        ("read A; x $A", "s:1: $A is read; --var A=VALUE gives it"),
        ("printf -v A '%q' 1; x $A", "s:1: $A is printed; --var A=VALUE gives it"),
        ("for ((i=0; i<N; i++)); do A=$i; done\nx $A", "s:1: $A: it depends on a loop, which only a run could tell; --var A=VALUE gives it"),
        ("for A in $(ls); do B=$A; done; x $B", "s:1: $B: it depends on a loop, which only a run could tell; --var B=VALUE gives it"),
    ],
)
def test_what_cannot_be_known_says_why(text: str, why: str) -> None:
    command = next(one for one in commands(text, "s") if one.words[0].text == "x")
    with pytest.raises(InputError) as error:
        command.words[1].known()
    assert str(error.value) == why


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x 'a\nb", "s:1: the quote ' has no end"),
        ('a\nx "b', 's:2: the quote " has no end'),
        ("A=(1\n2", "s:1: the list A=( has no closing bracket"),
        ("if true; then x", "s:1: 'if' has no 'fi'"),
        ("x\nfi", "s:2: 'fi' has no beginning"),
        ("x ${A", "s:1: the bracket { has no end"),
        ("f() { f; }; f", "s:1: the function f calls itself too often"),
        ("A=" + "y" * 1000 + "\n" + "A=$A$A\n" * 30, "the script's variable A holds more than 1024 KiB"),
        ("{ " * 60, "s:1: nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        commands(text, "s")
    assert str(error.value) == sentence


def test_options_and_their_values() -> None:
    (command,) = commands("megatron sft --lr 1e-5 --a=b --data 'x y' z --loss -1 --flag $X", "s")
    before, found = options(command.words)
    assert [word.text for word in before] == ["megatron", "sft"]
    assert [(one.name, [v.text for v in one.values]) for one in found] == [
        ("--lr", ["1e-5"]),
        ("--a", ["b"]),
        ("--data", ["x y", "z"]),
        ("--loss", ["-1"]),
        ("--flag", ["$X"]),
    ]


def test_nothing_is_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    text = (
        f"A=$(touch {touched}); `touch {touched}`; touch {touched}; eval touch {touched}; x > {touched} <(touch {touched}) ${{A:-$(touch {touched})}}"
    )
    commands(text, "s")
    assert not touched.exists()


def test_broken_scripts_are_read_or_refused() -> None:
    draw = random.Random(7)
    pieces = [
        "$((",
        "))",
        "${",
        "}",
        "'",
        '"',
        "`",
        "(",
        ")",
        "<<E",
        ";;",
        "if ",
        "fi",
        "\\",
        "\n",
        "A=",
        "[[ ",
        "&&",
        "\x00",
        "\ue000L9\ue001",
        "case x in",
        "é",
        "{",
    ]
    for _ in range(300):
        text = SCRIPT
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(text) + 1)
            if draw.random() < 0.6:
                text = text[:at] + draw.choice(pieces) + text[at:]
            elif draw.random() < 0.5:
                text = text[:at] + text[at + draw.randrange(1, 40) :]
            else:
                text = text[:at]
        try:
            commands(text or " ", "s")
        except InputError:
            pass


def test_expr_is_arithmetic() -> None:
    text = "n=4\ntorchrun --a $(expr 32 / $n / 2) --b `expr 3 \\* ${n} + 1` --c $(expr length $n) --d $(expr 1 / 0)\n"
    words = launch(text).words
    assert [word.text for word in words[2:6:2]] == ["4", "13"]
    assert words[6].why is not None and "the output of 'expr length $n'" in words[6].why
    assert words[8].why is not None


def test_a_line_that_runs_a_script_gives_its_arguments() -> None:
    call = "cd there\nCP=2 sh ./train.sh 7B 4 $(nproc)\n"
    script = "SIZE=$1; TP=${2}; WHAT=$3; LAST=${4:-9}\ntorchrun train.py --size $SIZE --tp $TP --what $WHAT --last $LAST --cp $CP\n"
    found = scripts([(call, "call.sh"), (script, "/far/train.sh")])
    assert [word.text for one in found for word in one.words if one.words[0].text == "torchrun"][2:] == [
        *["--size", "7B", "--tp", "4", "--what", "$(nproc)", "--last", "9", "--cp", "2"]
    ]
    assert not any(one.words[0].text == "sh" for one in found)
    other = scripts([("bash other.sh 7B\n", "call.sh"), (script, "train.sh")])
    assert [word.why is None for word in other[-1].words[3:4]] == [False]


def test_variables_that_slurm_sets_for_what_a_header_asks() -> None:
    header = "#!/bin/bash\n#SBATCH --nodes=64\n#SBATCH --ntasks-per-node 8\n#SBATCH --gpus-per-node=mi250:4\n##SBATCH -c 9\n"
    words = "x $((SLURM_JOB_NUM_NODES * 2)) $SLURM_NNODES $SLURM_NTASKS $SLURM_NPROCS $SLURM_GPUS_ON_NODE $SLURM_CPUS_PER_TASK"
    assert told(header + words)[1:6] == ["128", "64", "512", "512", "4"]
    assert "SLURM_CPUS_PER_TASK has no value" in (commands(header + words, "s")[0].words[-1].why or "")
    assert told("#SBATCH -N 2\n#SBATCH -n 5\nSLURM_NNODES=3\nx $SLURM_NNODES $SLURM_NTASKS")[1:] == ["3", "5"]
    assert [word.text for word in commands("#SBATCH -N 2\nx $SLURM_NNODES", "s", {"SLURM_NNODES": "7"})[0].words] == ["x", "7"]
    assert "has no value" in (commands("#SBATCH --nodes=2-4\nx $SLURM_NNODES", "s")[0].words[1].why or "")


def told(text: str) -> list[str]:
    return [word.text for word in commands(text, "s")[0].words]


def test_numbers_that_are_none_name_no_argument_and_no_element() -> None:
    for digits in ("9" * 5000, "²", "9" * 30):
        assert commands(f"x ${{{digits}}}", "s")[0].words[1].why
        assert commands(f"A=(1 2)\nx ${{A[{digits}]}}", "s")[0].words[1].why


def files(text: str) -> dict[str, tuple[str, str | None]]:
    last = commands(text, "s")[-1]
    return {name: (word.text, word.why) for name, word in last.files.items()}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('A=7\ncat > f <<E\n{"a": $A}\nE\nx', '{"a": 7}\n'),
        ("cat <<'E' >f\n$A `b`\nE\nx", "$A `b`\n"),
        ("cat <<-E > f\n\ta\n\tE\nx", "a\n"),
        ("cat > f <<E 2>/dev/null\na \\$b\nE\nx", "a $b\n"),
        ("echo one > f; echo two >> f; x", "one\ntwo\n"),
        ("cat > f <<E\na\nE\necho b > f\nx", "b\n"),
        ("cat <<E > f\nan odd ` mark\nE\nx", "an odd ` mark\n"),
    ],
)
def test_what_a_script_writes_into_a_file_is_known(text: str, written: str) -> None:
    assert files(text) == {"f": (written, None)}


def test_a_file_that_is_written_otherwise_or_in_one_branch_alone_is_not_known() -> None:
    assert files("cat > f <<E\na\nE\nmake > f\nx") == {}
    branches = "if [ $A = 1 ]; then cat > f <<E\na\nE\nelse echo b > f; fi\nx"
    assert files(branches)["f"][1] == "s:1: $A has no value; --var A=VALUE gives it"
    assert files("cat > f <<E\n$A\nE\nx")["f"] == ("$A\n", "s:2: $A has no value; --var A=VALUE gives it")


def test_a_file_goes_by_a_name_that_only_a_run_could_tell() -> None:
    last = commands("D=run_$(date)\ncat > $D/f <<E\na\nE\nx $D/f", "s")[-1]
    assert last.files[last.words[1].text].text == "a\n"


def test_a_script_knows_where_it_lies() -> None:
    for word in ("${BASH_SOURCE[0]}", "$0"):
        text = f'H=$(cd "$(dirname "{word}")/.." && pwd)\nx $H $(realpath $H/a/../b) "$(basename {word} .sh)"'
        assert [word.known() for word in commands(text, "a/b/run.sh")[-1].words] == ["x", "a", "a/b", "run"]
    assert commands("x $(cd $A && pwd)", "s")[-1].words[1].why == "s:1: $A has no value; --var A=VALUE gives it"


def test_a_script_beside_is_followed_whether_it_is_sourced_or_started(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("TP=4\nf() { G=8; }\n")
    (tmp_path / "inner.sh").write_text("x $1 $TP $PP\nTP=9\n")
    (tmp_path / "jobs").mkdir()
    begin = 'source "$(dirname "$0")/../env.sh"\nf\nexport TP\n'
    for start in ("bash ../inner.sh", "sbatch --nodes=2 ../inner.sh", "srun -l bash ../inner.sh"):
        (tmp_path / "jobs" / "run.sh").write_text(f"{begin}PP=2 {start} 7B\ny $TP $G $PP\n")
        found = scripts([((tmp_path / "jobs" / "run.sh").read_text(), str(tmp_path / "jobs" / "run.sh"))])
        assert [[word.text for word in command.words] for command in found] == [["x", "7B", "4", "2"], ["y", "4", "8", "$PP"]]
    # a file elsewhere is not looked at
    text = f". {Path(__file__)}\nx"
    assert [command.words[0].text for command in commands(text, str(tmp_path / "jobs" / "run.sh"))] == ["x"]


def test_scripts_name_others_from_where_they_are_started(tmp_path: Path) -> None:
    """As from the root of a checkout, two folders above: by sbatch, whose options stand above the header, and by srun with values of its own."""
    (tmp_path / "parts" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "jobs" / "a").mkdir(parents=True)
    (tmp_path / "parts" / "sizes.sh").write_text("SIZE=4\n")
    (tmp_path / "parts" / "train.sh").write_text("#SBATCH --nodes=2 --gres=gpu:8\n#SBATCH --ntasks-per-node 1\nsrun -W 0 parts/deep/er/step.sh 7B\n")
    (tmp_path / "parts" / "deep" / "er" / "step.sh").write_text("source parts/sizes.sh\nx $1 $SIZE $SLURM_NNODES $SLURM_NTASKS\n")
    begin = tmp_path / "jobs" / "a" / "run.sh"
    for asked, nodes in (("--job-name=x --nodes=4 -p main", "4"), ("-N 3", "3"), ("", "2")):
        found = commands(f"sbatch {asked} parts/train.sh", str(begin))
        assert [word.known() for word in found[-1].words] == ["x", "7B", "4", nodes, nodes]
    # what binds a process is not what it starts
    assert [word.text for word in commands("srun ./parts/train.sh python x.py", str(begin))[-1].words][-1] == "x.py"


@pytest.mark.parametrize(
    "script",
    [
        "IFS=',' read -r A B C <<< \"4,2\"\nx $A-$B-$C.",
        "IFS=, read -r A B <<< 4,2,8\nx $A-$B.",
        "V='4 2  8 9'\nread A B C <<< $V\nx $A-$B-$C.",
        'read -r A <<< " 4 2 "\nx "$A."',
        "IFS=: read -r A B << END\n4:2\n8:9\nEND\nx $A-$B.",
        "read -r -d '' A << END\n 4 2\n8 \nEND\nx $A.",
        "for V in 4,2 8,1; do IFS=',' read -r A B <<< $V; x $A-$B.; done",
    ],
)
def test_what_is_read_of_the_script_itself(script: str) -> None:
    said = subprocess.run(["bash", "-c", f"x() {{ printf '%s\n' \"$@\"; }}\n{script}"], capture_output=True, text=True, check=True).stdout
    found = commands(script, "s")
    assert [word.known() for command in found for word in command.words[1:]] == said.splitlines()


def test_what_else_is_read_is_not_known() -> None:
    for script in ("read A", "read -a A <<< 1", "IFS=',' read -r A B <<< $(date)", "IFS=',;' read A B <<< 1,2"):
        why = commands(f"{script}\nx $A", "s")[-1].words[1].why
        assert why is not None and why.startswith("s:1: $A is read"), script


@pytest.mark.parametrize(
    "script, words",
    [
        ("x --save <PATH TO A FOLDER> --load <THE SAME>/b --n 1", [["<PATH TO A FOLDER>"], ["<THE SAME>/b"], ["1"]]),
        (
            'A=<Specify path and file prefix>_text\nB=<path>\nx --save $A --load "$A" --n $B',
            [["<Specify path and file prefix>_text"]] * 2 + [["<path>"]],
        ),
        ('r="x --save <PATH TO IT> --n 1"\n$r', [["<PATH TO IT>"], ["1"]]),
        ('r="x --save <PATH TO IT> --n 1"\nsh -c "${r}"', [["<PATH TO IT>"], ["1"]]),
        ("x --n 1 <data/in 2>&1 --m 3", [["1"], ["3"]]),
        ("x --n 1 <in >out --m 3", [["1"], ["3"]]),
        ('x --save "<a b" --n c>', [["<a b"], ["c"]]),
    ],
)
def test_what_is_to_be_filled_in_is_one_word(script: str, words: list[list[str]]) -> None:
    given = options(commands(script, "s")[-1].words)[1]
    assert [[word.text for word in one.values] for one in given] == words


def test_a_script_that_leads_here_is_not_followed_again(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text('[ -z "$JOB" ] && sbatch "$0"\nbash b.sh\n')
    (tmp_path / "b.sh").write_text("x\nbash a.sh\n")
    found = commands((tmp_path / "a.sh").read_text(), str(tmp_path / "a.sh"))
    assert [command.words[0].text for command in found] == ["sbatch", "x", "bash"]


def test_slurm_names_accelerators_of_a_node_where_they_are_asked_for_so() -> None:
    """sbatch's --gpus-per-node sets it, --gres does not (slurm.schedmd.com/sbatch.html, output environment variables)."""
    assert scheduled("#SBATCH --gpus-per-node=4\n")["SLURM_GPUS_PER_NODE"] == "4"
    assert "SLURM_GPUS_PER_NODE" not in scheduled("#SBATCH --gres=gpu:4\n")


def test_a_loop_on_a_command_that_only_a_run_could_answer_has_no_known_turns() -> None:
    waiting = "while kill -0 $PID; do\n" + "  sync a b\n" * 12 + "done\ntrain\n"
    assert [[word.text for word in one.words] for one in commands(waiting, "s.sh")].count(["sync", "a", "b"]) == 12


def test_statements_of_scripts_that_a_script_starts_are_counted_with_its_own(tmp_path: Path) -> None:
    (tmp_path / "one.sh").write_text("a\n" * 400)
    (tmp_path / "all.sh").write_text("for i in " + "1 " * 100 + "; do\n  bash one.sh\ndone\n")
    with pytest.raises(InputError, match="too long to be followed"):
        commands((tmp_path / "all.sh").read_text(), str(tmp_path / "all.sh"))


def test_what_decides_between_commands_is_known() -> None:
    text = "for one in 4 8; do\n  if [[ $TASK -eq $one ]]; then\n    train.py --a $one\n  fi\ndone\n"
    found = [one for one in commands(text, "s.sh") if one.words[0].text == "train.py"]
    assert len(found) == 2 and which(found) == "the script decides by s.sh:2: $TASK has no value; --var TASK=VALUE gives it"
    assert which(commands("train.py --a 4\ntrain.py --a 8\n", "s.sh")) == "leave one of them"
