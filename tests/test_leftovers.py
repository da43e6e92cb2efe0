"""The comparison of the system before and after a test run, with real leftovers."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

import leftovers
import run


def job(name, script):
    return run.Job(name, ["sh", "-c", script], f"./dev test {name}")


class Leftovers(unittest.TestCase):
    def run_jobs(self, *jobs, marker="nothing"):
        """Failures and output of a run. Other tests run at the same time: only what has `marker` in its name counts."""
        real = leftovers.snapshot
        ours = lambda: {item for item in real() if marker in item[1]}  # noqa: E731
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "TARGET", Path(folder)):
            output = StringIO()
            patched = mock.patch.multiple(leftovers, PATIENCE=0.2, snapshot=ours, memory=lambda: 0)
            with patched, redirect_stdout(output):
                runner = run.Runner(jobs, StringIO())
                runner.run()
                runner.check_leftovers()
        return runner.counts.failed, output.getvalue()

    def test_a_run_that_leaves_nothing_passes(self):
        failed, _ = self.run_jobs(job("clean", 'f=$(mktemp); test "$f" != "${f#$TMPDIR}" && rm "$f"'))
        self.assertEqual(failed, [])

    def test_a_file_is_named_with_the_job_that_left_it(self):
        failed, output = self.run_jobs(job("clean", "true"), job("leaves_a_file", 'echo >"$TMPDIR/log"'))
        self.assertEqual(failed, ["leftovers of leaves_a_file"])
        self.assertRegex(output, r"left behind: file \S+/log, by leaves_a_file")

    def test_a_process_is_named_with_the_job_that_started_it(self):
        with tempfile.TemporaryDirectory() as folder:
            pid = f"{folder}/pid"
            failed, output = self.run_jobs(
                job("starts", f"setsid sleep 30.125 >/dev/null 2>&1 & echo $! >{pid}; sleep 0.2"), job("clean", "sleep 0.4"),
                marker="sleep 30.125",
            )
            os.kill(int(Path(pid).read_text(encoding="utf-8")), signal.SIGKILL)
        self.assertEqual(failed, ["leftovers of starts"])
        self.assertRegex(output, r"left behind: process \d+ of starts: sleep 30.125, by starts")

    def test_a_namespace_is_named_with_the_job_that_made_it(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root")
        name = f"ss-left-{os.getpid()}"
        self.addCleanup(lambda: [subprocess.run(["ip", "netns", "delete", n], check=False) for n in made()])

        def made():
            return [path.name for path in Path("/run/netns").glob(f"{name}*")]

        # A repeated job makes another one.
        makes = f"ip netns add {name}-$$; sleep 0.3"
        failed, output = self.run_jobs(job("makes", makes), job("clean", "sleep 0.5"), marker=name)
        self.assertEqual(failed, ["leftovers of makes"])
        self.assertRegex(output, rf"left behind: namespace /run/netns/{name}-\d+, by makes\n")

    def test_the_first_mount_of_the_bpf_file_system_is_no_leftover_and_a_pin_is(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root")
        script = """if True:
            import os, subprocess, leftovers
            while subprocess.run(["umount", "/sys/fs/bpf"], stderr=subprocess.DEVNULL).returncode == 0:
                pass
            before = leftovers.snapshot()
            subprocess.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"], check=True)
            print([item for item in leftovers.snapshot() - before if "/sys/fs/bpf" in item[1]])
            os.mkdir("/sys/fs/bpf/left")
            print([item for item in leftovers.snapshot() - before if "/sys/fs/bpf" in item[1]])
        """
        command = ["unshare", "--mount", sys.executable, "-c", script]
        done = subprocess.run(command, cwd=leftovers.__file__.rpartition("/")[0], capture_output=True, check=True, text=True)
        self.assertEqual(done.stdout, "[]\n[('folder of BPF pins', '/sys/fs/bpf/left')]\n")


if __name__ == "__main__":
    unittest.main()
