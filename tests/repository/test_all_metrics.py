"""One metrics page for all models: what a daemon's page does to it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from shisha_rt.repository.all_metrics import ModelsCollector


class _CutOff(BaseHTTPRequestHandler):
    """The page of a daemon that ends while it answers."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"# TYPE shisha_frames counter\n")

    def log_message(self, *_: object) -> None:
        """Be silent."""


def test_a_page_that_is_cut_off_leaves_the_others() -> None:
    with HTTPServer(("127.0.0.1", 0), _CutOff) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        page = f"http://127.0.0.1:{server.server_port}/"
        metrics = list(ModelsCollector(lambda: {"a": page}, lambda: {"a": 2}).collect())
        server.shutdown()
        serving.join()
    assert [(metric.name, metric.samples[0].value) for metric in metrics] == [("shisha_model_places", 2)]
