"""The second half of ./quickstart: image, world, pool VM, service, two jobs in one VM, and what each millisecond was for."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab as lab_module  # noqa: E402
from lab import HERE, LABELS, REPO, Failed, Lab, say  # noqa: E402

VM = "demo-1"
BEGUN = time.monotonic()


def stage(text):
    say("[%5.1f s] %s" % (time.monotonic() - BEGUN, text))


def script(call):
    with open(os.path.join(HERE, "leftovers.sh")) as f:
        return f.read() + "\n" + call + "\n"


def print_timeline(lab, lease, job):
    say("")
    say("Timeline of job %d (%s), lease %s:" % (job["id"], job["conclusion"], lease))
    sys.stdout.write(lab.host("history", lease).stdout)
    say("GitHub's side: queued to assigned %.1f s, assigned to started %.1f s, started to completed %.1f s" % (
        job["assigned"] - job["created"], job["started"] - job["assigned"], job["completed"] - job["started"]))
    say("")


def lease_of(lab, runner_name):
    for event_lease in lab.host_json("leases", "--all")["leases"]:
        if event_lease["runner_name"] == runner_name:
            return event_lease
    raise Failed("no lease has the runner name %s" % runner_name)


def one_job(lab, name, call):
    job = lab.emulator.job(REPO, LABELS, script(call), name=name)
    stage("job '%s' queued" % name)
    job = lab.emulator.wait_job(job["id"], "completed", 600)
    log = lab.emulator.log(job["id"])
    for line in log.splitlines():
        say("    | " + line)
    if job["conclusion"] != "success":
        raise Failed("job '%s' ended with %s" % (name, job["conclusion"]))
    lease = lease_of(lab, job["runner_name"])
    lab_module.wait_until("reset of %s" % VM, lambda: (lambda v: v["state"] == "READY" and v["generation"] >
                                                      lease["generation"])(lab.vm(VM)), 300, every=0.5)
    stage("%s is clean and READY again" % VM)
    print_timeline(lab, lease["lease"], job)
    return lease, job


def main():
    stage("image (Debian packages; the stand-in runner in place of actions/runner)")
    lab_module.ensure_image()
    stage("private world: libvirtd, network, emulator of GitHub on 203.0.113.10")
    with Lab("quickstart", keep=True) as lab:
        if lab.vm(VM):
            say("  reused: pool VM %s" % VM)
        else:
            stage("pool VM %s" % VM)
            lab.new_pool_vm(VM, wait=False)
        lab.configure(max=1)
        lab.wait_state(VM, "READY")
        stage("%s is READY; starting the runner service" % VM)
        service = lab.start_runners()
        now = "$(date +%s)"
        # The detector is shown to find what was planted, in the same job, before it is believed when it finds nothing.
        first = one_job(lab, "leave everything behind", (
            'before=%s; plant; look "$before" >/tmp/found; cat /tmp/found; n=$(wc -l </tmp/found);'
            ' echo "planted, and $n traces are seen"; [ "$n" -ge 20 ]') % now)
        host_time = "%d" % time.time()
        second = one_job(lab, "look for it", (
            'look %s >/tmp/found; cat /tmp/found; n=$(wc -l </tmp/found); echo "$n traces are seen"; [ "$n" = 0 ]'
        ) % host_time)
        lab.stop_runners(service, signal.SIGTERM)
        ours = [r for r in lab.emulator.runners() if not r["foreign"]]
        say("VM %s, lives %d and %d; registrations: %s" % (
            VM, first[0]["generation"], second[0]["generation"],
            ", ".join("%s %s" % (r["name"], r["ended"]) for r in ours)))
        if first[0]["vm"] != second[0]["vm"] or first[0]["generation"] == second[0]["generation"]:
            raise Failed("the two jobs did not run in two lives of one VM")
        if len(ours) != 2 or any(r["ended"] not in ("consumed", "deleted") for r in ours):
            raise Failed("expected two registrations, both consumed or deleted")
        lab.host("keeper", "stop")
    stage("done: job 1 left everything it could, job 2 found nothing of it")


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.stderr.write("quickstart: %s\n" % e)
        sys.exit(1)
