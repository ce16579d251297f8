"""How fast, and in how much memory: functional attention, its reference form, its baselines.

`reference_form` is the layer as one would first write it, `candidates` names all that is measured,
`measure`, `memory` and `scale` do so within one process, `child` is that process, `runner` decides
what to measure and keeps it as JSON, `found`, `targets`, `report` and `figure` turn the JSON into
tables and pictures.
"""
