"""A proxy on loopback for tests."""
import socket
import threading


class Proxy(threading.Thread):
    """CONNECT and nothing else."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listen, self.asked = socket.create_server(("127.0.0.1", 0)), []
        self.port = self.listen.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                s, _ = self.listen.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(4096)
            self.asked.append(head.split()[1].decode())
            host, port = self.asked[-1].rsplit(":", 1)
            far = socket.create_connection((host, int(port)))
            s.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for a, b in ((s, far), (far, s)):
                threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def copy(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass
