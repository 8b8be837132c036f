"""The service: recordings on request and all the time, for many users, watched over by systemd."""
