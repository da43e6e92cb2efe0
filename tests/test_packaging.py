"""The systemd units: valid, equal in their sandbox, and ready for the daemon."""

import configparser
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PACKAGING = Path(__file__).resolve().parents[1] / "packaging"
UNITS = ("sidestep.service", "sidestep@.service")


class Repeated(dict):
    """Options of a section; the values of a repeated option are joined."""

    def __setitem__(self, key, value):
        if key in self and isinstance(value, list):
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


def unit(name):
    """Options of a unit by section."""
    parser = configparser.ConfigParser(dict_type=Repeated, strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string((PACKAGING / name).read_text(encoding="utf-8"))
    return {name: dict(parser[name]) for name in parser.sections()}


class Units(unittest.TestCase):
    maxDiff = None

    def test_the_template_differs_from_the_unit_in_namespace_and_node_file_only(self):
        one, template = (unit(name) for name in UNITS)
        self.assertEqual(template["Service"].pop("NetworkNamespacePath"), "/run/netns/%i")
        self.assertTrue(one["Service"].pop("ExecStart").endswith(" run --config /etc/sidestep/node.yaml"))
        self.assertTrue(template["Service"].pop("ExecStart").endswith(" run --config /etc/sidestep/%i.yaml"))
        for options in (one, template):
            options["Unit"].pop("Description")
        self.assertEqual(one, template)

    def test_the_daemon_reports_its_state_and_a_failed_start_is_repeated_forever(self):
        options = unit(UNITS[0])
        service = options["Service"]
        self.assertEqual((service["Type"], service["NotifyAccess"]), ("notify", "main"))
        self.assertGreaterEqual(int(service["WatchdogSec"]), 10)
        self.assertEqual(options["Unit"]["StartLimitIntervalSec"], "0")
        self.assertTrue(service["ExecReload"].endswith("sidestep config reload"))

    def test_systemd_accepts_the_units(self):
        if not shutil.which("systemd-analyze"):
            raise unittest.SkipTest("systemd-analyze (Debian package systemd)")
        with tempfile.TemporaryDirectory() as folder:
            for name, instance in zip(UNITS, (UNITS[0], "sidestep@blue.service"), strict=True):
                text = (PACKAGING / name).read_text(encoding="utf-8")
                path = Path(folder) / instance
                # The program is not installed here.
                path.write_text(text.replace("/usr/local/sbin/sidestep", shutil.which("true")), encoding="utf-8")
                done = subprocess.run(
                    ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
                )
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), name)


if __name__ == "__main__":
    unittest.main()
