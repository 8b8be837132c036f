"""The second stage of a merge: trees, metrics, symbols and trace lines of all parts are united."""
