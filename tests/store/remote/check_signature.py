"""Checks the signature of a request to S3 with botocore, for remote_files_test.cc.

  check_signature.py METHOD URL KEY_ID SECRET TOKEN REGION   headers of the request as "name: value" lines on stdin

Exits with 0 if the signature is that of botocore, with 1 if it is another one, and prints the difference.
"""
import sys

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def main():
    method, url, key_id, secret, token, region = sys.argv[1:]
    headers = dict(line.rstrip("\n").split(": ", 1) for line in sys.stdin if ": " in line)
    given = headers.get("authorization", "")
    names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    # botocore adds the date, the token and the authorization itself.
    own = {"x-amz-date", "x-amz-security-token"}
    request = AWSRequest(method=method, url=url, headers={name: headers[name] for name in names if name not in own})
    auth = S3SigV4Auth(Credentials(key_id, secret, token or None), "s3", region)
    request.context["timestamp"] = headers["x-amz-date"]
    request.headers["X-Amz-Date"] = headers["x-amz-date"]
    if token:
        request.headers["X-Amz-Security-Token"] = headers["x-amz-security-token"]
    text = auth.string_to_sign(request, auth.canonical_request(request))
    signature = auth.signature(text, request)
    if given.endswith("Signature=" + signature) and "Credential=" + auth.scope(request) in given:
        return 0
    print(f"botocore signs {signature}; the request has {given}\n{auth.canonical_request(request)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
