#!/usr/bin/env python3
"""Has TensorBoard read what the event writer wrote.

    tests/interop/tensorboard_events.py build/report_test

Runs the writer's unit test with KULLBACK_LOOK set, then reads the files with tensorboard's own loader (which checks every
CRC) and compares all values. Exit status 0 when they agree, 77 where the package tensorboard is missing.
"""

import math
import os
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("no package tensorboard (pip install tensorboard): not tried")
    sys.exit(77)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "--gtest_filter=TensorboardWriter.WritesScalars"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "KULLBACK_LOOK": folder})
        events = EventAccumulator(folder + "/events", size_guidance={"scalars": 0})
        events.Reload()
    tags = sorted(events.Tags()["scalars"])
    assert tags == sorted(["train/loss", "eval/KL ‖ ½", "broken", "bad \ufffd bytes"]), tags
    loss = events.Scalars("train/loss")
    assert [e.step for e in loss] == list(range(101)), [e.step for e in loss]
    for event in loss[:100]:
        assert abs(event.value * (event.step + 1) - 1) < 1e-6 and event.wall_time == 1e9 + event.step, event
    assert loss[100].value == 0.5
    (far,) = events.Scalars("eval/KL ‖ ½")
    assert far.step == 1 << 40 and far.value == -2.5 and far.wall_time > 1.7e9, far
    broken = [e.value for e in events.Scalars("broken")]
    assert math.isnan(broken[0]) and broken[1] == math.inf, broken
    print(f"ok: {len(tags)} tags, {len(loss)} losses, read by TensorBoard")
    return 0


if __name__ == "__main__":
    sys.exit(main())
