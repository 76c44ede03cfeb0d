"""Why a consumer group did not get a message."""
