"""Write made-up webhook deliveries, one JSON object a line.

    python deliveries.py 2000 > deliveries.jsonl

The first is a `gollum`, and one in twenty is a `push`. Some come from no repository, or from no
sender.
"""

import json
import random
import sys

KINDS = ("issues", "issue_comment", "pull_request", "release", "star", "workflow_run")


def delivery(number: int, chance: random.Random) -> dict[str, object]:
    """The delivery with this number, from 0 on."""
    kind = "gollum" if number == 0 else "push" if number % 20 == 1 else chance.choice(KINDS)
    return {
        "event": kind,
        "repository_id": chance.choice((None, 101, 102, 103)),
        "sender_id": chance.choice((None, 7, 8, 9)),
        "payload": {"delivery": number, "action": "created", "text": "x" * chance.randrange(2_000)},
    }


if __name__ == "__main__":
    chance = random.Random(1)  # noqa: S311 -- the same deliveries each time
    for number in range(int(sys.argv[1])):
        sys.stdout.write(json.dumps(delivery(number, chance)) + "\n")
