"""boxery-vm on libvirt's test driver, spoken to in the keeper's place: a world for each class, two VMs for each test."""
import hashlib
import os
import shutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
from lab import ROOT, WORLD, run  # noqa: E402
from vmctl import DROP_MEMORY, EVIDENCE, FORCE, FRESH, HALT, PLAIN, STANDBY, TRIAL, WARM, Vm  # noqa: E402, F401

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else ""
URI = "test+unix:///default"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOy6LJPeQVBIOVlmPvbDHPH"
ENOENT, EIO, EBUSY, EEXIST, EINVAL, ENOMEM, ETIMEDOUT, ENOTCONN, ESTALE = -2, -5, -16, -17, -22, -12, -110, -107, -116


class DriverCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = os.path.join(ROOT, "w", "vm" + cls.__name__.lower())
        run([WORLD, "stop", cls.dir], check=False)
        shutil.rmtree(cls.dir, ignore_errors=True)
        run([WORLD, "start", cls.dir])
        cls.told = os.path.join(cls.dir, "told")
        os.mkdir(cls.told)
        os.environ["BOXERY_TESTDRIVER"] = cls.told
        cls.vm = Vm(world=cls.dir, program=PROGRAM)
        cls.setting("BOXERY_LIBVIRT_URI", URI)
        cls.make_base()
        # One connection that is held keeps the driver's state.
        cls.hold = cls.vm.watch()
        cls.hold.wait("snapshot")

    @classmethod
    def tearDownClass(cls):
        cls.hold.close()
        run([WORLD, "stop", cls.dir], check=False)
        shutil.rmtree(cls.dir, ignore_errors=True)

    @classmethod
    def make_base(cls):
        folder = cls.path("base", "tiny")
        os.makedirs(folder)
        files = {"vmlinuz": "", "initrd": "", "disk.qcow2": "a base\n", "manifest.env":
                 "ARCH=%s\nKERNEL=vmlinuz\nINITRD=initrd\nCMDLINE=quiet\nDISK_SHA256=%s\n" % (
                     os.uname().machine, hashlib.sha256(b"a base\n").hexdigest())}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)

    @classmethod
    def setting(cls, key, value):
        path = os.path.join(cls.dir, "config", "host.env")
        with open(path) as f:
            lines = [line for line in f if not line.startswith(key + "=")]
        with open(path, "w") as f:
            f.writelines(lines + ["%s=%s\n" % (key, value)])

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.dir, "image", *parts)

    def setUp(self):
        self.generation = {}
        self.good(self.vm.call("new", "a", slot=0, cpus=1, memory_mib=256, disk_gib=2, image="tiny"))
        self.good(self.vm.call("capture", "a"))
        self.good(self.vm.call("new", "b", slot=1, cpus=1, memory_mib=256, clean_of="a"))

    def tearDown(self):
        shutil.rmtree(self.told)
        os.mkdir(self.told)
        for e in reversed(self.vm.call("list").entries):
            self.vm.call("remove", e["name"], flags=FORCE)
        for e in self.vm.call("list").entries:
            self.good(self.vm.call("remove", e["name"], flags=FORCE))
        # Nothing of a VM that is gone stays, in files or in libvirt.
        left = [os.path.join(d, n) for part in ("images", "vms", "run", "broken", "console")
                for d, _, names in os.walk(self.path(part)) for n in names if n != ".network.lock"]
        self.assertEqual(left, [])
        self.assertEqual(self.virsh("list", "--all", "--name").split(), ["test"])

    def good(self, answer):
        self.assertTrue(answer.ok, answer.result)
        return answer

    def bad(self, answer, code, *words):
        self.assertIsNotNone(answer.result)
        self.assertEqual(answer.code, code, answer.result)
        for word in words:
            self.assertIn(word, answer.text)

    def virsh(self, *args):
        return run([WORLD, "run", self.dir, "--", "virsh", "-q", "-c", URI, *args]).stdout

    def create(self, xml, verb="create"):
        path = os.path.join(self.dir, "x.xml")
        with open(path, "w") as f:
            f.write(xml)
        self.virsh(verb, path)

    def tell(self, what, text=""):
        with open(os.path.join(self.told, what), "w") as f:
            f.write(text)

    def start(self, name="b", **more):
        self.generation[name] = self.generation.get(name, 0) + 1
        return self.vm.call("start", name, generation=self.generation[name], key_line=KEY, **more)

    def reset(self, name="b", **more):
        return self.vm.call("reset", name, generation=self.generation[name], **more)

    def entry(self, name="b"):
        return self.vm.call("list").entry(name)

    def doubt(self, *words, name="b"):
        trouble = self.entry(name)["trouble"]
        self.assertEqual(bool(words), bool(trouble), trouble)
        for word in words:
            self.assertIn(word, trouble)
