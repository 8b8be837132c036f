"""The recorder: targets, their processes and modules, and the collector that writes it all down."""
