#!/usr/bin/env python3
"""Opens a report in headless Chromium, light and dark, wide and on a phone, and tries what it promises.

    tests/interop/report_in_browser.py REPORT.html [FOLDER FOR SCREENSHOTS]

Checked: no message on the console, no request but for the page itself, nothing wider than the screen, values on hover,
tables sorted by a click, the data as a download. Exit status 0 when all holds, 1 when not, 77 where there is no Chromium
that starts.
Only the standard library is used: the browser is spoken to over --remote-debugging-pipe.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time


class Browser:
    """Chromium and one page in it, by the DevTools protocol (JSON messages ended by a zero byte)."""

    def __init__(self, program, profile):
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        def place_pipes():
            commands, answers = os.dup(read_there), os.dup(write_there)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_there)
        os.close(write_there)
        self.write_end, self.read_end = write_here, read_here
        self.buffer, self.number, self.session = b"", 0, None
        self.events = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(domain + ".enable")

    def receive(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], 90)
            more = os.read(self.read_end, 1 << 20) if ready else b""
            if not more:
                raise OSError("the browser has ended" if ready else "the browser has said nothing for 90 s")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def open(self, address, width, height, dark, phone):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.send("Page.navigate", url=address)
        while not self.value("document.readyState === 'complete'"):
            time.sleep(0.05)

    def screenshot(self, path, whole=True):
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            picture = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()


def check(problems, holds, text):
    print(("ok      " if holds else "WRONG   ") + text)
    if not holds:
        problems.append(text)


HOVER = """(scroll => {
  const results = [];
  for (const figure of document.querySelectorAll('figure[data-plot]')) {
    const svg = [...figure.querySelectorAll('svg.plot')].find(s => s.getBoundingClientRect().width > 0);
    if (scroll) svg.scrollIntoView({block: 'center'});
    const box = svg.getBoundingClientRect();
    if (box.bottom > innerHeight) continue;
    const [l, t, r, b] = svg.dataset.frame.split(' ').map(Number);
    const zoom = box.width / svg.viewBox.baseVal.width;
    let text = '';
    for (let i = 1; i < 20 && !text; ++i) for (let j = 1; j < 20 && !text; ++j) {
      svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + zoom * (l + (r - l) * i / 20), clientY: box.top + zoom * (t + (b - t) * j / 20), bubbles: true}));
      const tip = document.getElementById('tip');
      if (!tip.hidden) text = tip.innerText;
    }
    results.push(text);
  }
  return results;
})"""

SORT = """(() => [...document.querySelectorAll('table.sortable')].map(table => {
  const value = row => row.cells[COLUMN].dataset.value;
  const COLUMN = [...table.tBodies[0].rows[0]?.cells ?? []].findIndex(cell => cell.dataset.value !== undefined);
  if (COLUMN < 0) return true;
  const button = table.tHead.rows[0].cells[COLUMN].querySelector('button');
  const ordered = up => {
    const values = [...table.tBodies[0].rows].map(value).filter(v => v !== undefined).map(Number);
    return values.every((v, i) => i === 0 || (up ? values[i - 1] <= v : values[i - 1] >= v));
  };
  button.click();
  const rising = ordered(true);
  button.click();
  return rising && ordered(false);
}))()"""


def main():
    page = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("no Chromium (apt-get install chromium): not tried")
        return 77
    problems = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        try:
            browser = Browser(program, profile)
        except OSError as problem:
            print(f"{program} does not start here ({problem}): not tried")
            return 77
        try:
            for name, width, height, dark, phone in [("light", 1280, 900, False, False), ("dark", 1280, 900, True, False),
                                                     ("tablet", 768, 1024, False, False), ("phone", 390, 844, False, True)]:
                browser.open(page.as_uri(), width, height, dark, phone)
                browser.screenshot(folder / f"{name}.png")
                wide = browser.value("document.documentElement.scrollWidth")
                check(problems, wide <= width, f"{name}: the page is {wide} pixels wide on a screen of {width}")
                tips = browser.value(HOVER + "(true)")
                check(problems, all(tips), f"{name}: values on hover in {sum(map(bool, tips))} of {len(tips)} plots")
                browser.value("new Promise(done => setTimeout(done, 200))")  # the page hides values while it scrolls
                browser.value(HOVER + "(false)")
                browser.screenshot(folder / f"{name}-hover.png", whole=False)
                check(problems, all(browser.value(SORT)), f"{name}: tables are sorted by a click")
            downloads = pathlib.Path(profile) / "downloads"
            browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
            browser.value("document.getElementById('download').click()")
            data = None
            for _ in range(100):
                files = list(downloads.glob("*.json")) if downloads.exists() else []
                if files:
                    data = json.loads(files[0].read_text())
                    break
                time.sleep(0.05)
                browser.value("0")
            check(problems, data is not None and "plots" in data, "the data comes as a file")
            said = [e for e in browser.events if e.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]
            check(problems, not said, f"{len(said)} messages on the console" + "".join("\n        " + json.dumps(e["params"])[:300] for e in said))
            asked = {e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"}
            other = {url[:80] for url in asked if url != page.as_uri() and not url.startswith(("data:", "blob:"))}
            check(problems, not other, f"{len(other)} requests to elsewhere {sorted(other) or ''}")
        finally:
            browser.close()
    print(f"screenshots: {folder}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
