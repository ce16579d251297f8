"""The whole job on a small example: make Darcy data, train, choose, test once, report.

    python -m funcattn.demo

learns the map from a permeability to the pressure of Darcy flow on a grid of 22 x 22 points, and is
then asked on a grid of 43 x 43 points, which it never saw.
"""
