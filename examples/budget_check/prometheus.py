"""Stands in for Prometheus: answers every query with the number in a file.

Usage: python prometheus.py FILE [PORT]
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Answers(BaseHTTPRequestHandler):
    """`GET /api/v1/query` as Prometheus answers an instant query."""

    file = Path("spent")

    def do_GET(self) -> None:
        """Answer with one sample."""
        sample: dict[str, Any] = {
            "metric": {},
            "value": [time.time(), self.file.read_text().strip()],
        }
        data = {"resultType": "vector", "result": [sample]}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    Answers.file = Path(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 9090
    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()
