"""Looking at processes and files of others: bounded in time and by user, never waiting for them."""
