"""Differences from PyTorch's host that are PyTorch's own, each with its reason.

An excuse is a rule about the call and both answers. The run counts the differences that each one covers.
"""

import collections

import torch

Excuse = collections.namedtuple("Excuse", "name reason covers")


def is_reader(case, device, answer, wanted, why):
    return why[0] == "reader"


EXCUSES = [
    Excuse("python-arguments", "Python's reader of arguments refuses the call before torch sees it", is_reader),
]


def find(case, device, answer, wanted, why):
    """The excuse of a difference, or None."""
    return next((excuse for excuse in EXCUSES if excuse.covers(case, device, answer, wanted, why)), None)
