"""Tests against released Apache RocketMQ brokers, and the programs that make the test stores."""
