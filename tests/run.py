#!/usr/bin/env python3
"""Runs the tests of a tier, or the tests that names select. `./dev check` and `./dev test` call it.

Cargo builds the test programs. This script runs them in parallel. The jobs that took longest in the
last run start first; tests/times.json has the times for the first run. Each live test runs in a
separate process. A test that measures time, memory or loss runs alone. tests/tiers.toml has these
groups. The state of the system is compared before and after (tests/leftovers.py). The last line of
the output is `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import leftovers

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BENCH = ROOT / "bench/Cargo.toml"
# The program that ships. `./dev test --release` and `--all` build it first.
ROUTER = TARGET / "release/sidestep"
# Times of the longest jobs in seconds, for a run without an earlier one, and the time of any other.
TIMES = ROOT / "tests/times.json"
SHORT = 4
TIERS = ("check", "test", "release", "all")
CPUS = len(os.sched_getaffinity(0))
# A live test waits most of the time, so two of them share a CPU. Any other job takes one slot per
# thread.
SLOTS = 2 * CPUS
# Time limit of a job in seconds.
PATIENCE = 900
# The same for an emulated machine. tests/vm/run stops it earlier, and prints the reason.
PATIENCE_VM = 3300
# Longest job in seconds that is repeated to find out whether it leaves something in the system.
AGAIN_MAX = 60
# Number of the slowest jobs that a summary lists.
SLOWEST = 20
# Seconds between two reports of the running jobs.
SILENCE = 30


@dataclass
class Job:
    """A process that runs one test or many."""

    name: str
    command: list
    # Command that repeats the job.
    again: str
    folder: Path = ROOT
    environment: dict = field(default_factory=dict)
    slots: int = 1
    alone: bool = False
    # Function that returns the Counts of an output and an exit status.
    count: object = None
    patience: int = PATIENCE


@dataclass
class Counts:
    """Results of tests: a number, the names of failed tests, and the reasons of skipped tests."""

    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)


def say(text):
    print(f"dev: {text}", file=sys.stderr, flush=True)


# --- jobs -----------------------------------------------------------------------------------------------------------


class Groups:
    """The lists of tests/tiers.toml."""

    def __init__(self):
        self.lists = tomllib.loads((ROOT / "tests/tiers.toml").read_text(encoding="utf-8"))

    def has(self, group, test):
        return any(test.startswith(prefix) for prefix in self.lists[group])

    def in_tier(self, tier, test):
        """Whether a tier has a test. The tier `release` has no test of the others."""
        if tier == "release" or self.has("release", test):
            return tier in ("release", "all") and self.has("release", test)
        if tier == "all":
            return True
        if self.has("slow", test):
            return False
        return tier == "test" or not self.has("root", test)


@dataclass
class Program:
    """A test program that cargo built."""

    package: str
    # `lib` for the unit tests of the package.
    target: str
    path: str
    folder: Path
    tests: list = field(default_factory=list)

    def __str__(self):
        return f"{self.package}::{self.target}"


def cargo_build(*options):
    """Builds test programs and returns them."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        say("building the tests failed: see above")
        print("\n0 passed, 1 failed, 0 skipped")
        sys.exit(1)
    programs = []
    for line in done.stdout.splitlines():
        built = json.loads(line)
        if not built.get("executable") or not built["profile"]["test"]:
            continue
        folder = Path(built["manifest_path"]).parent
        package = re.search(r'^name = "(.*)"', Path(built["manifest_path"]).read_text(encoding="utf-8"), re.M).group(1)
        target = "lib" if "lib" in built["target"]["kind"] else built["target"]["name"]
        programs.append(Program(package, target, built["executable"], folder))
    return programs


def build(tier, patterns, packages):
    """Builds the test programs that can have selected tests, and returns them.

    The benchmark is a workspace of its own. Its tests start the router next to their program.
    """
    options = [word for package in packages if package != "sidestep-bench" for word in ("-p", package)]
    found = set() if packages else known_programs(patterns)
    known = targets_of(found)
    bench = "sidestep-bench" in packages or (tier == "all" and not patterns and not packages)
    bench = bench or any(pattern in "sidestep-bench::" or "bench" in pattern for pattern in patterns)
    bench = bench or any(program.startswith("sidestep-bench::") for program in found)
    programs = []
    if options or not packages or bench:
        programs = cargo_build(*(options or ["--workspace"]), *([] if bench else known))
    if bench:
        programs += cargo_build("--manifest-path", str(BENCH), "--target-dir", str(TARGET))
    for program in programs:
        list_tests(program)
    if not packages and not known:
        names = {str(program): program.tests for program in programs}
        (TARGET / "dev-tests.json").write_text(json.dumps(names), encoding="utf-8")
    return programs


def list_tests(program):
    done = subprocess.run(
        [program.path, "--list", "--format", "terse"], cwd=program.folder, capture_output=True, check=True, text=True
    )
    program.tests = [line.removesuffix(": test") for line in done.stdout.splitlines() if line.endswith(": test")]


def pattern_of(word):
    """The part of test names that a word of the command line selects: the word itself, or a file."""
    path = word.removeprefix("./")
    if match := re.fullmatch(r"vectors/(\w+)\.yaml", path):
        return f"::{match[1]}::"
    if match := re.fullmatch(r"(?:crates/)?(\w+)/(src|tests)/(.*)\.rs", path):
        package = "sidestep" if match[1] == "cli" else f"sidestep-{match[1]}"
        parts = match[3].split("/")
        parts = parts[:-1] if parts[-1] in ("mod", "main", "lib") else parts
        return "::".join([package, *(["lib"] if match[2] == "src" else []), *parts]) + "::"
    return path


def known_programs(patterns):
    """The programs whose tests, as of the last run, are selected; none if that is not known."""
    if not patterns:
        return set()
    try:
        known = json.loads((TARGET / "dev-tests.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return {program for program, tests in known.items() for test in tests if selected(f"{program}::{test}", patterns)}


def targets_of(programs):
    """Options of cargo that build these programs. It accepts --lib once."""
    targets = sorted({program.split("::")[1] for program in programs})
    return [f"--test={target}" if target != "lib" else "--lib" for target in targets]


def selected(test, patterns):
    return not patterns or any(pattern in test for pattern in patterns)


def jobs_of(program, tier, patterns, groups):
    """The jobs of one test program."""
    names = {test: f"{program}::{test}" for test in program.tests}
    if tier in ("release", "all"):
        # Tests with the program that ships.
        for test, name in names.items():
            if (groups.has("smoke", name) or groups.has("release", name)) and selected(f"release::{name}", patterns):
                yield Job(
                    f"release::{name}",
                    [program.path, "--exact", test],
                    f"./dev test release::{name}",
                    program.folder,
                    {"SIDESTEP_TEST_AGAIN": "./dev test release", "SIDESTEP": str(ROUTER)},
                    alone=groups.has("alone", name),
                    count=count_rust,
                )
    chosen = [
        test
        for test, name in names.items()
        if selected(name, patterns) and groups.in_tier(tier, name) and not groups.has("release", name)
    ]
    if not chosen:
        return

    def job(name, tests, slots, arguments):
        return Job(
            f"{program}{name}",
            [program.path, *arguments],
            f"./dev test {program}{name}",
            program.folder,
            {"SIDESTEP_TEST_AGAIN": "./dev test"},
            slots,
            any(groups.has("alone", names[test]) for test in tests),
            count_rust,
        )

    if groups.has("vectors", str(program)):
        # One job for each target, which loads its program once for all vectors.
        for part in sorted({test.split("::")[0] for test in chosen}):
            tests = [test for test in chosen if test.split("::")[0] == part]
            whole = len(tests) == sum(test.split("::")[0] == part for test in program.tests)
            arguments = [f"{part}::"] if whole else ["--exact", *tests]
            yield job(f"::{part}", tests, max(1, CPUS // 2), [*arguments, f"--test-threads={max(1, CPUS // 2)}"])
        return
    isolated = groups.has("isolated", str(program))
    apart = [test for test in chosen if isolated or groups.has("alone", names[test]) or groups.has("slow", names[test])]
    for test in apart:
        yield job(f"::{test}", [test], 1, ["--exact", test])
    together = [test for test in chosen if test not in apart]
    if together:
        arguments = [] if len(together) == len(program.tests) else ["--exact", *together]
        slots = min(CPUS, len(together))
        yield job("" if len(together) > 1 else f"::{together[0]}", together, slots, [*arguments, f"--test-threads={slots}"])


def other_jobs(tier, patterns, groups):
    """Jobs without a test program of cargo: sources, pages, models, fuzzing, other kernels."""
    python = "/usr/bin/python3"
    again = "./dev test"

    def command(name, *words, **more):
        return Job(name, list(words), f"{again} {name}", **more)

    def kernel(part, name):
        # One emulated machine at a time: each has as many processors as this machine.
        words = ["./dev", "test-kernel", {"kernel": "--short", "frr": "--frr"}[part], name]
        return command(f"{part}::{name}", *words, slots=CPUS + 1, count=count_vm, patience=PATIENCE_VM)

    everything = [
        command("source::clippy", "./dev", "lint", "clippy", slots=CPUS),
        command("source::bench", "./dev", "lint", "bench", slots=CPUS),
        command("source::format", "./dev", "lint", "format"),
        command("source::shellcheck", "./dev", "lint", "shellcheck"),
        command("source::vectors", "./dev", "lint", "vectors"),
        command("source::pages", "./dev", "lint", "pages"),
        command("repository", python, "-m", "unittest", "discover", "-v", "-s", "tests", count=count_python),
        command("examples", "cargo", "test", "--workspace", "--locked", "--doc", count=count_rust),
        command(
            "model::prefix_table",
            *("cargo", "test", "--profile", "model", "--locked", "-p", "sidestep-fib", "--test", "model"),
            *("--target-dir", str(TARGET / "loom")),
            environment={"RUSTFLAGS": "--cfg loom"},
            slots=CPUS,
            count=count_rust,
        ),
        command("fuzz::datapath", "./dev", "fuzz", "datapath", "--seconds", "60"),
        command("release::size", python, "tests/size.py"),
        command(
            "package::bookworm", "./dev", "test-package", "bookworm", "none", slots=CPUS + 1, patience=PATIENCE_VM
        ),
        kernel("kernel", "oldest"),
        kernel("kernel", "newest"),
        *(kernel("frr", name) for name in ("6.1", "6.12", "newest")),
    ]
    return [job for job in everything if selected(job.name, patterns) and groups.in_tier(tier, job.name)]


# --- results --------------------------------------------------------------------------------------------------------


def count_status(job, output, status):
    """Counts of a job that is one test."""
    if status == 77:
        reasons = re.findall(r"^SKIP (.*)", output, re.M) or [f"{job.name}: it cannot run here"]
        return Counts(skipped=reasons)
    return Counts(failed=[job.name]) if status else Counts(passed=1)


def count_rust(job, output, status):
    """Counts of the output of Rust's test harness, for one or several programs.

    A test that cannot run prints `SKIP NAME: why` and passes. A crashed program prints no result.
    """
    counts = Counts()
    results = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output, re.M)
    counts.passed = sum(int(passed) for passed, _, _ in results)
    failed = sum(int(failed) for _, failed, _ in results)
    for block in re.findall(r"^failures:\n((?:    \S+\n)+)", output, re.M):
        counts.failed += [line.strip() for line in block.splitlines()]
    skips = {line.split(": ")[0]: line for line in re.findall(r"^SKIP (.*)", output, re.M)}
    counts.passed = max(0, counts.passed - len(skips))
    counts.skipped = sorted(skips.values())
    counts.skipped += [f"{name}: ignored {why}" for name, why in re.findall(r"^test (\S+) \.\.\. ignored(?:, )?(.*)", output, re.M)]
    if len(counts.failed) < failed or (status and not counts.failed):
        counts.failed.append(job.name)
    return counts


def count_python(job, output, status):
    counts = Counts()
    ran = re.search(r"^Ran (\d+) tests?", output, re.M)
    counts.failed = [line.split(" ")[0] for line in re.findall(r"^(\S+ .*)\.\.\. (?:FAIL|ERROR)$", output, re.M)]
    counts.skipped = [f"{name}: {why}" for name, why in re.findall(r"^(\S+) .*\.\.\. skipped ['\"](.*)['\"]$", output, re.M)]
    if status and not counts.failed:
        counts.failed = [job.name]
    counts.passed = max(0, (int(ran[1]) if ran else 0) - len(counts.failed) - len(counts.skipped))
    return counts


def count_vm(job, output, status):
    """Counts of the last line of `./dev test-kernel`."""
    result = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", output, re.M)
    if not result:
        return count_status(job, output, status or 1)
    skips = [f"({job.name}) {line}" for line in sorted(set(re.findall(r"^SKIP (.*)", output, re.M)))]
    return Counts(int(result[1]), [job.name] * int(result[2]), skips[: int(result[3])])


# --- running --------------------------------------------------------------------------------------------------------


def environment_of(job, folder):
    """Environment of a job, with the folder for its temporary files."""
    own = {leftovers.JOB: job.name, "TMPDIR": str(folder)}
    return os.environ | {"RUST_BACKTRACE": os.environ.get("RUST_BACKTRACE", "1")} | own | job.environment


class Runner:
    """Runs jobs in parallel and reports each result."""

    def __init__(self, jobs, log):
        self.log = log
        self.times_path = TARGET / "dev-times.json"
        self.times = read_json(TIMES) | read_json(self.times_path)
        self.took = {}
        # Processor time in seconds, with that of child processes.
        self.processor = {}
        # The longest jobs first.
        self.waiting = sorted(jobs, key=lambda job: -self.times.get(job.name, SHORT))
        self.jobs = {job.name: job for job in jobs}
        self.total = len(jobs)
        self.done = 0
        self.running = {}
        self.changed = threading.Condition()
        self.counts = Counts()
        self.again = []
        # Each job has a folder for temporary files in it.
        self.scratch = Path(tempfile.mkdtemp(prefix="ss-test."))
        self.scratch.chmod(0o755)
        self.before = leftovers.snapshot()
        self.memory = leftovers.memory()
        # Jobs that ran when something first appeared in the system.
        self.suspects = {}
        self.left = {}
        self.began = self.reported = time.monotonic()

    def run(self):
        with self.changed:
            while self.waiting or self.running:
                while job := self.next():
                    self.waiting.remove(job)
                    self.running[job.name] = (job, time.monotonic(), self.start(job))
                    threading.Thread(target=self.execute, args=[job], daemon=True).start()
                self.changed.wait(timeout=1)
                if time.monotonic() - self.reported > SILENCE:
                    self.report_running()
        self.times_path.write_text(json.dumps(self.times, indent=1), encoding="utf-8")
        processor = {name: round(seconds, 1) for name, seconds in self.processor.items()}
        (TARGET / "dev-processor.json").write_text(json.dumps(processor, indent=1), encoding="utf-8")

    def next(self):
        """The next job that may begin now."""
        running = [job for job, *_ in self.running.values()]
        if any(job.alone for job in running):
            return None
        used = sum(job.slots for job in running)
        shared = [job for job in self.waiting if not job.alone]
        for job in shared:
            if used + job.slots <= SLOTS or not running:
                return job
        return self.waiting[0] if self.waiting and not shared and not running else None

    def report_running(self):
        now = self.reported = time.monotonic()
        names = ", ".join(f"{name} ({now - began:.0f} s)" for name, (_, began, _) in self.running.items())
        say(f"{now - self.began:.0f} s, {self.done} of {self.total} jobs done; running: {names}")

    def folder_of(self, job):
        """The folder for the temporary files of a job."""
        return self.scratch / str(sorted(self.jobs).index(job.name))

    def start(self, job):
        folder = self.folder_of(job)
        folder.mkdir()
        folder.chmod(0o1777)
        return subprocess.Popen(
            job.command,
            cwd=job.folder,
            env=environment_of(job, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def execute(self, job):
        _, began, process = self.running[job.name]
        stopped = []

        def stop():
            stopped.append(f"\n{job.name} was stopped after {job.patience} s\n".encode())
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(job.patience, stop)
        timer.start()
        output = process.stdout.read() + b"".join(stopped)
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        self.processor[job.name] = usage.ru_utime + usage.ru_stime
        output = output.decode("utf-8", "replace")
        counts = (job.count or count_status)(job, output, process.returncode)
        with self.changed:
            self.watch(job)
            self.finish(job, output, counts, seconds)
            self.changed.notify()

    def watch(self, job):
        """Records what the running jobs have made, at the end of one of them."""
        folder = self.folder_of(job)
        for path in sorted(folder.iterdir()):
            self.left["file", str(path)] = [job.name]
        shutil.rmtree(folder, ignore_errors=True)
        present = leftovers.snapshot() - self.before - {("file", str(self.scratch))}
        self.suspects = {item: self.suspects.get(item, sorted(self.running)) for item in present}

    def check_leftovers(self):
        """Fails the run for everything that it has left in the system, and names the jobs."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for item in leftovers.settled(self.before):
            self.left[item] = self.culprits(self.suspects.get(item, []), item)
        for item, jobs in sorted(self.left.items()):
            print(f"left behind: {leftovers.text(item)}, by {' or '.join(jobs) or 'a job that has ended before'}", flush=True)
            self.counts.failed.append(f"leftovers of {' or '.join(jobs)}")
            self.again += [self.jobs[job].again for job in jobs if job in self.jobs]
        now = leftovers.memory()
        if now != self.memory and not self.left:
            self.counts.failed.append(f"leftovers: BPF held {self.memory} bytes of kernel memory before, and {now} now")
        elif not self.left:
            say(f"nothing left behind; BPF holds {now} bytes of kernel memory, as before")

    def culprits(self, suspects, item):
        """Repeats the jobs that ran when something appeared, and returns those that leave such a thing."""
        if item[0] == "process":
            # `leftovers.processes` has read it from the environment.
            return [item[1].partition(" of ")[2].partition(": ")[0]]
        if len(suspects) < 2:
            return suspects
        found = []
        for name in (name for name in suspects if self.took[name] < AGAIN_MAX):
            before = leftovers.snapshot()
            job = self.jobs[name]
            folder = Path(tempfile.mkdtemp())
            subprocess.run(job.command, cwd=job.folder, env=environment_of(job, folder), capture_output=True, check=False)
            shutil.rmtree(folder, ignore_errors=True)
            if any(kind == item[0] for kind, _ in leftovers.settled(before)):
                found.append(name)
        return found or suspects

    def finish(self, job, output, counts, seconds):
        del self.running[job.name]
        self.done += 1
        self.reported = time.monotonic()
        self.times[job.name] = self.took[job.name] = round(seconds, 2)
        self.log.write(f"=== {job.name}, {seconds:.1f} s\n{output}\n")
        self.log.flush()
        result = "FAILED" if counts.failed else "skipped" if counts.skipped and not counts.passed else "ok"
        number = counts.passed + len(counts.failed) + len(counts.skipped)
        tests = f" ({number} tests)" if number > 1 else ""
        width = len(str(self.total))
        print(f"[{self.done:{width}}/{self.total}] {result:7} {seconds:6.1f} s  {job.name}{tests}", flush=True)
        if counts.failed:
            print(failure_of(output), flush=True)
            for name in counts.failed:
                self.again.append(job.again if name in job.name or not job.count == count_rust else f"./dev test {name}")
                print(f"    again: {self.again[-1]}", flush=True)
        self.counts.passed += counts.passed
        self.counts.failed += counts.failed
        self.counts.skipped += counts.skipped

    def end(self):
        """Terminates the running jobs."""
        for _, _, process in list(self.running.values()):
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.scratch, ignore_errors=True)

    def summary(self):
        slowest = sorted(self.took.items(), key=lambda item: -item[1])[:SLOWEST]
        if len(slowest) > 1:
            print(f"\nslowest of {self.total} jobs, in seconds, and the processor time of each:")
            print("\n".join(f"  {seconds:6.1f} {self.processor[name]:6.1f}  {name}" for name, seconds in slowest))
            print(f"  {sum(self.took.values()):6.1f} {sum(self.processor.values()):6.1f}  all jobs")
        if self.counts.skipped:
            print("\nskipped:")
            print("\n".join(f"  {reason}" for reason in sorted(set(self.counts.skipped))))
        if self.counts.failed:
            print("\nfailed:")
            print("\n".join(f"  {command}" for command in self.again))
        counts = self.counts
        print(f"\n{counts.passed} passed, {len(counts.failed)} failed, {len(counts.skipped)} skipped", flush=True)


def failure_of(output):
    """The part of a failed job's output that shows the reason."""
    at = output.find("\nfailures:\n")
    text = output[at:] if at >= 0 else output
    lines = text.strip().splitlines()
    if len(lines) > 400:
        lines = [*lines[:200], f"    ... {len(lines) - 400} lines, all in the log ...", *lines[-200:]]
    return "\n".join(f"    {line}" for line in lines)


def read_json(path):
    """The object in a file, or an empty one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def clean_commit():
    """The commit of a tree without changes, or None."""
    git = ["git", "-C", ROOT]
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return commit.stdout.strip() if not changed.returncode and not changed.stdout else None


def arguments_of(words):
    """The command line."""
    parser = argparse.ArgumentParser(prog="./dev test", description="Runs tests.")
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--all", action="store_const", const="all", dest="tier", help="all tests")
    tier.add_argument("--check", action="store_const", const="check", dest="tier", help="tests that need no root")
    tier.add_argument(
        "--release", action="store_const", const="release", dest="tier", help="tests of the release router, and the oldest kernel"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the tests and run none")
    parser.add_argument("-p", "--package", action="append", default=[], help="build and run the tests of this package only")
    parser.add_argument("name", nargs="*", help="part of a test's name, or a file of tests or vectors")
    return parser.parse_args(words)


def main():
    """Entry."""
    arguments = arguments_of(None)
    patterns = [pattern_of(word) for word in arguments.name]
    # A test that is selected by name runs in any tier.
    tier = arguments.tier or ("all" if patterns or arguments.package else "test")
    groups = Groups()
    commit = clean_commit()
    if tier != "all" or patterns:
        # The same random inputs in each run. A run of all tests has new ones.
        os.environ.setdefault("PROPTEST_RNG_SEED", "1")
    else:
        seed = os.environ.setdefault("DIFFERENTIAL_SEED", str(random.randrange(1 << 32)))
        say(f"DIFFERENTIAL_SEED={seed}")

    TARGET.mkdir(exist_ok=True)
    say("building the tests")
    began = time.monotonic()
    programs = build(tier, patterns, arguments.package)
    say(f"built in {time.monotonic() - began:.0f} s")

    jobs = [job for program in programs for job in jobs_of(program, tier, patterns, groups)]
    if not arguments.package:
        jobs += other_jobs(tier, patterns, groups)
    if arguments.list:
        names = [f"{program}::{test}" for program in programs for test in program.tests]
        names = [name for name in names if selected(name, patterns) and groups.in_tier(tier, name)]
        print("\n".join(names + [job.name for job in jobs if job.name not in names and not job.count == count_rust]))
        return 0
    if not jobs:
        say(f"no test is named {' or '.join(arguments.name)}; `./dev test --list` prints the names")
        return 1
    if any(job.name.startswith("release::") for job in jobs):
        began = time.monotonic()
        if subprocess.run(["./dev", "build"], cwd=ROOT, check=False).returncode:
            print("\n0 passed, 1 failed, 0 skipped")
            return 1
        say(f"built the release in {time.monotonic() - began:.0f} s")
    log_path = TARGET / "dev-test.log"
    with log_path.open("w", encoding="utf-8") as log:
        runner = Runner(jobs, log)
        say(f"{len(jobs)} jobs, output in {log_path}")
        try:
            runner.run()
        except KeyboardInterrupt:
            runner.end()
            return 130
        runner.check_leftovers()
        runner.summary()
    failed = len(runner.counts.failed)
    if tier == "all" and not patterns and commit and commit == clean_commit():
        # packaging/release.py reads it.
        (TARGET / "tested.json").write_text(json.dumps({"commit": commit, "failed": failed}), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
