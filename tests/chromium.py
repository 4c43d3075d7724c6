"""A headless Chromium, told what to do by the DevTools protocol over two pipes."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # Commands come in on descriptor 3 and answers go out on 4, without a network port.
    "--remote-debugging-pipe",
)
SECONDS = 60.0


def found() -> str | None:
    """Return where Chromium is, if anywhere."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser with one page, which tells of every complaint and every request."""

    def __init__(self, program: str, folder: Path) -> None:
        self._command = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        self._number = 0
        self._waiting = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None

    def __enter__(self) -> Self:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # A shell puts the pipes where Chromium looks for them.
        shell = f'exec "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *self._command],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and return its result; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path, *, width: int = 1000, height: int = 900, dark: bool = False) -> None:
        """Open a file, and wait until all of it is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors, warnings and anything else written to the console since the page was opened."""
        self.ask("1")
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Every address that the page asked for, its own included."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path) -> None:
        """Write the whole page as PNG."""
        self._keep(path, self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True))

    def pdf(self, path: Path) -> None:
        """Write the page as it would be printed, on A4."""
        self._keep(path, self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69))

    @staticmethod
    def _keep(path: Path, result: dict[str, Any]) -> None:
        path.write_bytes(base64.b64decode(result["data"]))

    def _next(self) -> dict[str, Any]:
        """Read the next message; a browser that says nothing for a minute is given up."""
        end = time.monotonic() + SECONDS
        while b"\0" not in self._waiting:
            ready: Sequence[int] = select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]
            part = os.read(self._read, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("Chromium does not answer.")
            self._waiting += part
        message, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(message)
