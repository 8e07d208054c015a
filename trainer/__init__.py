"""The SPADE loop: one policy designs environments, plays them with and without a hint, and learns from both.

Start reading at `trainer/loop.py`. This package knows neither Django nor the web application.
"""
