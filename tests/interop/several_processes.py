"""One run by a single process, by torchrun and by mpirun: the same losses to 1e-5, and one run folder.

    python3 several_processes.py KULLBACK MODEL DATA.jsonl

torchrun is PyPI's (package torch), mpirun Debian's (openmpi-bin); what is not there is said and left out. Run by hand: two steps of a real model,
three times.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    return [row["train/loss"] for row in rows if "train/loss" in row]


def launchers():
    torchrun = shutil.which("torchrun", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    mpirun = shutil.which("mpirun")
    yield "torchrun", torchrun and [torchrun, "--nproc-per-node", "2", "--no-python"]
    yield "mpirun", mpirun and [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2"]


def main():
    kullback, model, data = sys.argv[1:4]
    failed = False
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)

        def run(name, launcher):
            command = launcher + [kullback, "align", "--method", "dpo", "--model", model, "--data", data, "--max-rows", "24",
                                  "--max-steps", "2", "--batch-size", "4", "--max-length", "192", "--drop-overlong", "--samples", "0",
                                  "--output", str(work / name)]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            return losses(work / name)

        alone = run("alone", [])
        for name, launcher in launchers():
            if not launcher:
                print(f"{name}: not here, left out")
                continue
            together = run(name, launcher)
            apart = max(abs(a - b) for a, b in zip(alone, together, strict=True))
            print(f"{name}: losses {together}, at most {apart:.2e} from those of one process")
            failed |= apart > 1e-5
    sys.exit(failed)


if __name__ == "__main__":
    main()
