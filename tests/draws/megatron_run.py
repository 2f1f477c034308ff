"""Run cases through the oracle script of ../shared (Megatron-Core on CPU, with fake groups), in a process of its own.

python megatron_run.py SCRIPT TREE CASES RESULTS: CASES is a JSON list of {"section", "case"}; RESULTS gets a line of JSON
for each, {"result", "error"}, as it is done.
"""

from __future__ import annotations

import importlib.util
import json
import sys


def main() -> None:
    script, tree, source, target = sys.argv[1:]
    sys.argv = [script, *(["--tree", tree] if tree != "-" else [])]
    spec = importlib.util.spec_from_file_location("megatron_oracle", script)
    assert spec is not None and spec.loader is not None
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    run = {"params": oracle.run_params, "ddp": oracle.run_ddp, "trace": oracle.run_trace}
    with open(source) as file:
        drawn = json.load(file)
    with open(target, "w") as file:
        for one in drawn:
            case = one["case"]
            oracle.SB.update({k: case[k] for k in ("s", "b") if k in case})
            result, error = oracle.guarded(run[one["section"]], case)
            if oracle.dist.is_initialized():
                oracle.ps.destroy_model_parallel()
                oracle.dist.destroy_process_group()
            oracle.TRACE_ON[0] = False
            file.write(json.dumps({"result": oracle.jsonable(result), "error": error}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
