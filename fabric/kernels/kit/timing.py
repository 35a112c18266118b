"""The words of closed forms are those of `fabric.price.timing`."""

from fabric.price.timing import *  # noqa: F403
