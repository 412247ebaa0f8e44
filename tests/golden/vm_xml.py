#!/usr/bin/python3
"""What boxery-vm tells libvirt and nft, word by word. `vm_xml.py RENDER FOLDER --update` writes the files anew."""
import os
import subprocess
import sys
import xml.dom.minidom

KINDS = {"domain-qemu": "xml", "domain-kvm": "xml", "domain-plain": "xml", "domain-arm": "xml", "domain-escaped": "xml",
         "domain-open": "xml", "domain-limits": "xml", "network": "xml", "filter": "xml", "guard": "nft",
         "guard-nwfilter": "nft", "guard-proxy": "nft", "domain-nwfilter": "xml", "rate": "nft"}


def main(render, folder, update):
    bad = 0
    for kind, ending in KINDS.items():
        text = subprocess.run([render, kind], check=True, stdout=subprocess.PIPE, text=True).stdout
        if ending == "xml":
            xml.dom.minidom.parseString(text)
        path = os.path.join(folder, "%s.%s" % (kind, ending))
        if update:
            with open(path, "w") as f:
                f.write(text)
        with open(path) as f:
            wanted = f.read()
        if text != wanted:
            bad += 1
            print("%s: differs from %s; now it is:\n%s" % (kind, path, text))
    # Only these differ between a filtered guest and an open one.
    with open(os.path.join(folder, "domain-open.xml")) as f:
        opened = f.read().splitlines()
    for kind, wanted in (("domain-qemu", 1), ("domain-nwfilter", 6)):
        with open(os.path.join(folder, kind + ".xml")) as f:
            closed = f.read().splitlines()
        extra = [line for line in closed if line not in opened]
        assert [line for line in opened if line not in closed] == []
        assert extra[0] == "<port isolated='yes'/>" and len(extra) == wanted, extra
    print("%d texts, %d differ" % (len(KINDS), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["--update"]))
