"""What patterns of names freeze, as symsim reads them and as they are found in transformers' own names: `python tests/draws/names.py --count 500`.

Of random Hugging Face configs of families with a naming of their own or of most, the parameters that stay trained when a pattern freezes what
it is found in (`re.search`, as ms-swift does), as integers. Patterns are such as people write. Exit code 1 where a number differs. Needs
transformers and torch.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

from huggingface import build, draw  # noqa: E402

from symsim.api.result import derive  # noqa: E402
from symsim.errors import InputError  # noqa: E402
from symsim.importers.parameters import of_patterns  # noqa: E402
from symsim.inputs.hf import read_config  # noqa: E402
from symsim.inputs.strategy import Strategy  # noqa: E402

TYPES = """llama mistral qwen2 qwen3 qwen3_moe qwen3_next qwen3_5_text qwen2_moe gemma2 gemma3_text phi3 glm mixtral deepseek_v3 olmo2 olmo_hybrid
    cohere granite jamba bamba falcon_h1 granitemoe granitemoeshared granitemoehybrid smollm3 kimi_linear minimax lfm2 lfm2_moe llama4_text gpt_oss
    hunyuan_v1_dense phimoe starcoder2""".split()
# norms of some families have the words of other modules in their names: they are left out of these
PATTERNS = (
    r"\.self_attn\.", r"\.(mlp|feed_forward|block_sparse_moe|shared_mlp)\.", r"\.(linear_attn|mamba|conv)\.", r"layers\.[0-2]\.", r".*norm.*",
    r"layers\.\d*[13]\..*\.(q_proj|o_proj|qkv_proj|out_proj)\.", r"embed_tokens|lm_head", r"^(?!.*(norm|embed)).*",
    r"layers\.0\..*(down|gate_up)_proj", r"\.experts\.", r"^model\.layers\.(0|2)\.(self_attn|mlp)\.", r"shared_mlp|shared_experts?",
    r"\.mlp\.gate\.weight",
)  # fmt: skip


def outcome(seed: int, index: int) -> tuple[str, str]:
    """What a drawn case came to, and which it is."""
    rng = random.Random(f"{seed}/{index}")
    kind, pattern = TYPES[index % len(TYPES)], rng.choice(PATTERNS)
    for _ in range(60):
        config = draw(rng, kind)
        try:
            model, names = read_config(config, "drawn", "config.json")[0], dict(build(config).named_parameters())
        except Exception:  # what either refuses is another script's
            continue
        break
    else:
        return "not built", kind
    theirs, every = (sum(p.numel() for name, p in names.items() if not re.search(one, name)) for one in (pattern, "$^"))
    found, lost = of_patterns([pattern], model)
    if lost or not theirs:
        return ("equal" if theirs in (0, every) else "lost"), f"{kind} {pattern}"
    try:
        ours = derive(model, Strategy(fusion="eager", freeze_parameters=tuple(found))).value("params.trained")
    except InputError as error:
        return "refused", f"{kind} {pattern} {error}"
    return ("equal" if ours == theirs else "different"), f"{kind} {pattern}: {ours:,} and {theirs:,} of {every:,}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    tally: Counter[str] = Counter()
    for index in range(given.count):
        what, which = outcome(given.seed, index)
        tally[what] += 1
        if what not in ("equal", "not built"):
            print(what, which)
    print(", ".join(f"{n} {what}" for what, n in sorted(tally.items())))
    return 1 if tally["different"] + tally["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
