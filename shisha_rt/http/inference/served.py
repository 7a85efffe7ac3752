"""The objects that serve the protocol over both HTTP and gRPC: one of each per process."""

from __future__ import annotations

from shisha_rt.http.app_state import AppState
from shisha_rt.http.inference.about import About
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.shared_memory import FOLDER, SharedFiles


class Served:
    """Shared by HTTP and gRPC, so that a region registered over one can be used over the other."""

    def __init__(self, app_state: AppState) -> None:
        self.files = SharedFiles(FOLDER if app_state.settings.shared_memory else None)
        self.inferences = Inferences(app_state, self.files)
        self.about = About(app_state)
