"""The JIT configuration: base64(JSON {file name: base64(content)}), about 4 kB, with a canary tests can look for."""
import base64
import json
import secrets


def _b64(data):
    return base64.b64encode(data).decode()


def _stretch(outer, inner_start, inner_len):
    """The part of base64(outer) that is determined by outer[inner_start:inner_start+inner_len] alone."""
    first = -(-inner_start // 3)
    last = (inner_start + inner_len) // 3
    return base64.b64encode(outer)[first * 4:last * 4].decode()


def make(runner_id, name, group_id, group_name, github_url, service_url, work_folder):
    """Returns {encoded, canary, needles}. The RSA parameters are random bytes of the right lengths, not a key."""
    canary = "jitcanary_" + secrets.token_hex(24)
    runner = {
        "AgentId": str(runner_id), "AgentName": name, "PoolId": str(group_id), "PoolName": group_name,
        "DisableUpdate": "True", "Ephemeral": "True", "ServerUrl": service_url, "GitHubUrl": github_url,
        "WorkFolder": work_folder, "UseV2Flow": "True", "ServerUrlV2": service_url,
    }
    credentials = {
        "Scheme": "OAuth",
        "Data": {"clientId": canary, "authorizationUrl": service_url + "/session", "requireFipsCryptography": "True"},
    }
    rsa = {k: _b64(secrets.token_bytes(n)) for k, n in
           (("d", 256), ("dp", 128), ("dq", 128), ("inverseQ", 128), ("modulus", 256), ("p", 128), ("q", 128))}
    rsa["exponent"] = "AQAB"
    cred_text = json.dumps(credentials).encode()
    files = {".runner": _b64(json.dumps(runner).encode()), ".credentials": _b64(cred_text),
             ".credentials_rsaparams": _b64(json.dumps(rsa).encode())}
    whole = json.dumps(files).encode()
    once = _stretch(cred_text, cred_text.index(canary.encode()), len(canary))
    twice = _stretch(whole, whole.index(once.encode()), len(once))
    return {"encoded": _b64(whole), "canary": canary, "needles": [canary, once, twice]}
