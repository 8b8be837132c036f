"""The service: recordings on request and all the time, for many users, watched over by systemd."""

SOCKET = "/run/hpcd/control.sock"
"""The service's control socket, unless it is configured otherwise."""
