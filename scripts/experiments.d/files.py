"""The files of an experiment: those that it writes below one folder, and the tables that it reads."""
import csv
import json
import os
import tempfile


class Folder:
    def __init__(self, work):
        self.work = work

    def write(self, name, text):
        """Replaces the file as a whole: commands that run in parallel may read it."""
        file = self.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        os.replace(temporary, file)
        return file

    def write_json(self, name, document):
        return self.write(name, json.dumps(document, indent=1) + "\n")


def read_csv(file):
    """The rows after the header as dictionaries by column; lines that begin with # are comments."""
    with open(file, encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(line for line in opened if not line.startswith("#")))
