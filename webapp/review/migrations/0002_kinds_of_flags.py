"""The fifteen kinds to start from: SPADE's prompt rules, its self-judge list, and reports of reward hacking."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

KINDS = (
    ("answer-leaked", "answer leaked in observation", "What the agent is shown holds the winning action."),
    ("shortcut", "reward without solving", "There is reward for something that is not solving the task."),
    ("constant-answer", "constant or hard-coded answer", "The same action wins for every seed."),
    ("unsolvable", "unsolvable or hidden state", "The agent cannot find out what it would have to know."),
    ("non-deterministic", "not deterministic under one seed", "The same seed and actions lead to different replies."),
    ("wrong-reward", "wrong reward", "Right play is not rewarded, or wrong play is."),
    ("hang", "never terminates", "It hangs, or goes on for ever."),
    ("crash", "crash", "It raises an error in play."),
    ("trivial", "trivial, guessable", "Guessing wins often enough."),
    ("hint-reveals", "hint reveals the answer", "The hint names the winning action instead of helping to find it."),
    ("hint-useless", "hint useless or wrong", "The hint says nothing that helps, or something untrue."),
    ("duplicate", "duplicate of another environment", "Another environment asks for the same thing."),
    ("off-skill", "off skill", "It trains another skill than the one it was written for."),
    ("unsafe", "unsafe or licence problem", "Harmful content, or text that may not be used."),
    ("unreadable", "unreadable", "Neither program nor observations can be followed."),
)


def add_kinds(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    kind = apps.get_model("review", "FlagKind")
    for position, (key, label, description) in enumerate(KINDS, start=1):
        kind.objects.get_or_create(key=key, defaults={"label": label, "description": description, "position": position})


class Migration(migrations.Migration):
    dependencies = [("review", "0001_flags")]
    operations = [migrations.RunPython(add_kinds, migrations.RunPython.noop)]
