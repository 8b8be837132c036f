"""What stands out in a recording: findings, by what the time of its threads was used for."""
