"""How the records of a run become what a person sees of it."""

from checkrein.control.viewing.viewer import Viewer, look, view_of

__all__ = ["Viewer", "look", "view_of"]
