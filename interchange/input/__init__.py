"""Shared by all imports: input files, trees and threads, and the measurement that is built."""
