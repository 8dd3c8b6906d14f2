from __future__ import annotations

from tests.support.patient_verbs import patient_verbs

__all__ = ["patient_verbs"]
