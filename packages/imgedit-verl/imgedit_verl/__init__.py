"""An image editor as a worker of verl and EasyR1, for RL training that has edits made in its
rollouts.
"""

__version__ = "0.1.0"
